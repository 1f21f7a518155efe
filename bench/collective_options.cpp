#include "bench/collective_options.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>
#include <utility>

#include "apps/local_ranks.h"
#include "comm/library_versions.h"
#include "comm/mpi_collectives.h"
#include "kernels/runtime/check.h"

namespace convoy::bench {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 40;

const std::vector<std::pair<std::string, DType>>& types() {
  static const std::vector<std::pair<std::string, DType>> all = {{"float", DType::f32},
                                                                 {"half", DType::f16},
                                                                 {"bfloat16", DType::bf16},
                                                                 {"double", DType::f64},
                                                                 {"int32", DType::i32}};
  return all;
}

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const auto& [name, dtype] : types()) names.push_back(name);
  names.push_back("all");
  return names;
}

std::vector<Collective> parse_collectives(const std::string& text) {
  std::vector<Collective> found;
  std::istringstream names(text);
  for (std::string name; std::getline(names, name, ',');) {
    const Collective collective = parse_collective(name);
    check(std::find(found.begin(), found.end(), collective) == found.end(), "--collective {}: found {} twice",
          text, name);
    found.push_back(collective);
  }
  check(!found.empty(), "--collective: found none, expected one of {}", fmt::join(collective_names(), ", "));
  return found;
}

std::optional<int> parse_root(const std::string& text) {
  if (text == "all") return std::nullopt;
  int root = -1;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), root);
  check(error == std::errc() && stop == text.data() + text.size() && root >= 0,
        "--root: found '{}', expected a rank, or all", text);
  return root;
}

/// Those without which there is nothing to add, by MPI.
void check_beside_mpi(const CollectivePlan& plan, const CollectiveOptions& options) {
  if (std::none_of(plan.collectives.begin(), plan.collectives.end(), adds)) return;
  for (const DType dtype : plan.dtypes)
    check(mpi_adds(dtype) || mpi_version_text().empty(),
          "--beside-mpi: MPI has no sum of {}, found --datatype {}; expected float, double or int32",
          nccl_name_of(dtype), options.datatype);
}

}  // namespace

CommandLine collective_command_line(CollectiveOptions& o) {
  CommandLine line("convoy-bench-allreduce",
                   "Measures collectives between the ranks of a job, with the flags, columns and definitions "
                   "of nccl-tests. Start it as the training is to be started: by mpirun, by hand, with "
                   "--devices.");
  line.heading("Sizes");
  line.add("minbytes", &o.minbytes, "The smallest size: bytes, or with K, M, G so many times 1024",
           {.short_name = 'b', .value = "BYTES"});
  line.add("maxbytes", &o.maxbytes, "The largest size", {.short_name = 'e', .value = "BYTES"});
  line.add("stepbytes", &o.stepbytes, "From one size to the next", {.short_name = 'i', .value = "BYTES"});
  line.add("stepfactor", &o.stepfactor, "From one size to the next, in the place of --stepbytes: a factor",
           {.short_name = 'f', .value = "N", .least = 2, .most = 1 << 20});
  line.heading("Collectives");
  line.add("collective", &o.collective,
           fmt::format("Which, or several with commas: {}", fmt::join(collective_names(), ", ")),
           {.value = "NAMES"});
  line.add("op", &o.op, "How elements are combined: sum, which is all that Convoy's communicators do",
           {.short_name = 'o', .value = "NAME"});
  line.add("datatype", &o.datatype, "Type of the elements",
           {.short_name = 'd', .value = "NAME", .choices = type_names()});
  line.add("root", &o.root, "The rank that a broadcast comes from, or all: each in turn",
           {.short_name = 'r', .value = "RANK"});
  line.heading("Measurement");
  line.add("iters", &o.iters, "Collectives that are timed together",
           {.short_name = 'n', .value = "N", .least = 1, .most = 1e6});
  line.add("warmup_iters", &o.warmup_iters, "Collectives before that, of each size",
           {.short_name = 'w', .value = "N", .least = 0, .most = 1e6});
  line.add("check", &o.check, "How often results are compared with what they must be; 0: never",
           {.short_name = 'c', .value = "N", .least = 0, .most = 1000});
  line.add("average", &o.average,
           "Which rank's time counts; 0: rank 0's, 1: their mean, 2: the least, 3: the most",
           {.short_name = 'a', .value = "N", .choices = {"0", "1", "2", "3"}});
  line.add(
      "blocking", &o.blocking,
      "After each collective, 1: wait for it and for all ranks, 2: wait for it; 0: wait for the last alone",
      {.short_name = 'z', .value = "N", .choices = {"0", "1", "2"}});
  line.add(
      "percentiles", &o.percentiles,
      "Time each collective by itself, too, and show the median and the 99th percentile in further columns");
  line.add(
      "beside-mpi", &o.beside_mpi,
      "Measure MPI's own collectives on the same data, in turn with Convoy's: for ranks started by mpirun");
  line.add("rounds", &o.rounds, "How often the two take turns, with --beside-mpi",
           {.value = "N", .least = 1, .most = 1000});
  line.add("json", &o.json, "Write the result to this file too, by rank 0", {.value = "FILE"});
  line.heading("Devices");
  add_compute_flags(line, o.compute);
  add_devices_flag(line, o.job);
  add_job_flags(line, o.job);
  return line;
}

std::int64_t parse_bytes(const char* flag, const std::string& text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, number);
  int shift = 0;
  if (error == std::errc() && stop + 1 == end) {
    constexpr std::string_view kUnits = "KkMmGg";
    const std::size_t unit = kUnits.find(*stop);
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) / 2 + 1);
      ++stop;
    }
  }
  check(error == std::errc() && stop == end, "{}: found '{}', expected bytes: 8, 32K, 128M or 1G", flag,
        text);
  check(number >= 1, "{}: found {}, expected at least 1 byte", flag, text);
  check(number <= kMostBytes >> shift, "{}: found {}, expected at most 1024G", flag, text);
  return number << shift;
}

std::vector<std::int64_t> sizes_between(std::int64_t least, std::int64_t most, std::int64_t step,
                                        std::optional<std::int64_t> factor) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = least; size <= most; size = factor ? size * *factor : size + step)
    sizes.push_back(size);  // at most 2^40 times 2^20
  return sizes;
}

std::string nccl_name_of(DType dtype) {
  for (const auto& [name, known] : types())
    if (known == dtype) return name;
  return std::string(name_of(dtype));
}

CollectivePlan make_plan(const CollectiveOptions& options, const CommandLine& line) {
  check(options.op == "sum",
        "--op: found '{}', expected sum: Convoy's communicators add, and have no other operation",
        options.op);
  check(!options.stepfactor || !line.given("stepbytes"),
        "--stepfactor {}: found --stepbytes {} too, expected one of the two", options.stepfactor.value_or(0),
        options.stepbytes);
  check(!line.given("rounds") || options.beside_mpi,
        "--rounds {}: of two that take turns, expected --beside-mpi", options.rounds);
  const std::int64_t least = parse_bytes("--minbytes", options.minbytes);
  const std::int64_t most = parse_bytes("--maxbytes", options.maxbytes);
  check(least <= most, "--minbytes {}: more than --maxbytes {}", options.minbytes, options.maxbytes);
  const std::int64_t step = parse_bytes("--stepbytes", options.stepbytes);
  const bool is_factor = options.stepfactor.has_value();
  constexpr std::int64_t kMostSizes = 100000;
  check(is_factor || (most - least) / step < kMostSizes,
        "--stepbytes {}: {} sizes from {} to {}, expected at most {}; --stepfactor 2 takes larger steps",
        options.stepbytes, (most - least) / step + 1, options.minbytes, options.maxbytes, kMostSizes);
  CollectivePlan plan{.collectives = parse_collectives(options.collective),
                      .sizes = sizes_between(least, most, step, options.stepfactor),
                      .step = options.stepfactor.value_or(step),
                      .is_factor = is_factor,
                      .iters = static_cast<int>(options.iters),
                      .warmup_iters = static_cast<int>(options.warmup_iters),
                      .checks = static_cast<int>(options.check),
                      .over_ranks = static_cast<OverRanks>(options.average.front() - '0'),
                      .blocking = static_cast<Blocking>(options.blocking.front() - '0'),
                      .root = parse_root(options.root),
                      .percentiles = options.percentiles,
                      .mpi_rounds = options.beside_mpi ? static_cast<int>(options.rounds) : 0};
  check(!line.given("root") || std::any_of(plan.collectives.begin(), plan.collectives.end(), has_root),
        "--root {}: only broadcast has one, found --collective {}", options.root, options.collective);
  for (const auto& [name, dtype] : types())
    if (options.datatype == name || options.datatype == "all") plan.dtypes.push_back(dtype);
  if (options.beside_mpi) check_beside_mpi(plan, options);
  return plan;
}

std::vector<Case> cases_of(const CollectivePlan& plan, Collective collective, int ranks) {
  std::vector<int> roots = {-1};
  if (has_root(collective)) {
    check(plan.root.value_or(0) < ranks, "--root: no rank {} among {}", plan.root.value_or(0), ranks);
    roots.clear();
    for (int root = plan.root.value_or(0); root <= plan.root.value_or(ranks - 1); ++root)
      roots.push_back(root);
  }
  std::vector<Case> cases;
  for (const DType dtype : plan.dtypes)
    for (const int root : roots)
      for (const std::int64_t bytes : plan.sizes)
        cases.push_back(make_case(collective, dtype, root, ranks, bytes));
  return cases;
}

}  // namespace convoy::bench
