#include "bench/collectives/options.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "convoy/apps/common/text.h"
#include "convoy/apps/ranks/local_ranks.h"
#include "convoy/comm/bootstrap/environment.h"
#include "convoy/comm/core/library_versions.h"
#include "convoy/comm/transport/mpi/mpi_communicator.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/nearest_name.h"

namespace convoy::bench {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 40;

constexpr std::array kCollectives = {
    std::pair(Collective::all_reduce, "all_reduce"), std::pair(Collective::reduce_scatter, "reduce_scatter"),
    std::pair(Collective::all_gather, "all_gather"), std::pair(Collective::broadcast, "broadcast")};

constexpr std::array kTypes = {std::pair(DType::f32, "float"), std::pair(DType::f16, "half"),
                               std::pair(DType::bf16, "bfloat16"), std::pair(DType::f64, "double"),
                               std::pair(DType::i32, "int32")};

/// Returns the names of a table.
std::vector<std::string> names_of(const auto& table) {
  std::vector<std::string> names;
  for (const auto& [value, name] : table) names.emplace_back(name);
  return names;
}

/// Returns the name of a value in a table.
std::string name_in(const auto& table, auto value, std::string_view otherwise) {
  const auto* const found = std::ranges::find(table, value, [](const auto& row) { return row.first; });
  return found == table.end() ? std::string(otherwise) : found->second;
}

std::vector<Collective> parse_collectives(const std::string& text) {
  std::vector<Collective> found;
  for (const std::string& name : split(text)) {
    const auto* const known =
        std::ranges::find_if(kCollectives, [&](const auto& each) { return each.second == name; });
    if (known == kCollectives.end())
      fail<UsageError>("--collective: {}", unknown_name("collective", name, names_of(kCollectives)));
    check(std::ranges::find(found, known->first) == found.end(), "--collective {}: found {} twice", text,
          name);
    found.push_back(known->first);
  }
  check(!found.empty(), "--collective: found no name, expected one or more of {}",
        fmt::join(names_of(kCollectives), ", "));
  return found;
}

std::optional<int> parse_root(const std::string& text) {
  if (text == "all") return std::nullopt;
  const std::optional<int> root = number_in<int>(text);
  check(root.value_or(-1) >= 0, "--root: found '{}', expected a rank or 'all'", text);
  return root;
}

/// Throws UsageError if MPI cannot reduce one of the selected types.
void check_beside_mpi(const CollectivePlan& plan, const CollectiveOptions& options) {
  if (std::ranges::none_of(plan.collectives, adds)) return;
  for (const DType dtype : plan.dtypes)
    check(dist::mpi_can_sum(dtype) || dist::mpi_version_text().empty(),
          "--beside-mpi: MPI has no sum of {}; found --datatype {}, expected float, double or int32",
          nccl_type_name(dtype), options.datatype);
}

/// Sets --devices from -g and -t.
void take_flags_of_nccl_tests(CollectiveOptions& options) {
  const std::int64_t ranks = options.ngpus * options.nthreads;
  const std::string given = fmt::format("-g {} -t {}", options.ngpus, options.nthreads);
  check(ranks == 1 || !options.job.devices || options.job.devices == ranks,
        "{}: {} ranks per process, found --devices {}, expected one of the two", given, ranks,
        options.job.devices.value_or(1));
  const auto launch = dist::launch_from(dist::environment_variables());
  check(
      ranks == 1 || !launch || launch->world_size == 1,
      "{}: found one of {} processes ({}); here a process of several has one rank, so start {} processes with -g 1 -t 1",
      given, launch ? launch->world_size : 1, launch ? launch->source : "",
      ranks * (launch ? launch->world_size : 1));
  if (ranks > 1) options.job.devices = ranks;
}

bool is_divided(Collective collective) {
  return collective == Collective::reduce_scatter || collective == Collective::all_gather;
}

}  // namespace

std::string to_string(Collective collective) { return name_in(kCollectives, collective, "?"); }

double bus_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  return has_root(collective) ? 1 : is_divided(collective) ? others : 2 * others;
}

std::int64_t Case::in_count() const {
  return collective == Collective::reduce_scatter ? count * ranks : count;
}

std::int64_t Case::out_count() const { return collective == Collective::all_gather ? count * ranks : count; }

std::int64_t Case::bytes() const {
  return std::max(in_count(), out_count()) * static_cast<std::int64_t>(size_of(dtype));
}

Case make_case(Collective collective, DType dtype, int root, int ranks, std::int64_t bytes) {
  const std::int64_t elements = bytes / static_cast<std::int64_t>(size_of(dtype));
  return {.collective = collective,
          .dtype = dtype,
          .root = root,
          .ranks = ranks,
          .count = is_divided(collective) ? elements / ranks : elements};
}

CommandLine collective_command_line(CollectiveOptions& o) {
  CommandLine line(
      "convoy-bench-allreduce",
      "Measures collectives between ranks, with the flags, columns and definitions of nccl-tests. "
      "Start it with the same launcher as the training (mpirun, --devices, ...).");
  line.group("Sizes");
  line.add("minbytes", &o.minbytes, "Minimum size (bytes, or with the suffix K, M or G)",
           {.short_name = 'b', .value = "BYTES"});
  line.add("maxbytes", &o.maxbytes, "Maximum size", {.short_name = 'e', .value = "BYTES"});
  line.add("stepbytes", &o.stepbytes, "Increment between sizes", {.short_name = 'i', .value = "BYTES"});
  line.add("stepfactor", &o.stepfactor, "Factor between sizes, instead of --stepbytes",
           {.short_name = 'f', .value = "N", .minimum = 2, .maximum = 1 << 20});
  std::vector<std::string> types = names_of(kTypes);
  types.emplace_back("all");
  line.group("Collectives");
  line.add("collective", &o.collective,
           fmt::format("Collectives, comma-separated: {}", fmt::join(names_of(kCollectives), ", ")),
           {.value = "NAMES"});
  line.add("op", &o.op, "Reduction operation: sum", {.short_name = 'o', .value = "NAME"});
  line.add("datatype", &o.datatype, "Element type", {.short_name = 'd', .value = "NAME", .choices = types});
  line.add("root", &o.root, "Root rank of a broadcast, or all: each rank in turn",
           {.short_name = 'r', .value = "RANK"});
  line.group("Measurement");
  line.add("iters", &o.plan.iters, "Collectives per measurement",
           {.short_name = 'n', .value = "N", .minimum = 1, .maximum = 1e6});
  line.add("warmup_iters", &o.plan.warmup_iters, "Warmup collectives per size",
           {.short_name = 'w', .value = "N", .minimum = 0, .maximum = 1e6});
  line.add("check", &o.plan.checks, "Number of result checks per size; 0: none",
           {.short_name = 'c', .value = "N", .minimum = 0, .maximum = 1000});
  line.add("percentiles", &o.plan.percentiles,
           "Additional columns with the median and 99th percentile of single collectives");
  line.add("beside-mpi", &o.beside_mpi,
           "Comparison with MPI's collectives on the same data, alternating (requires mpirun)");
  line.add("rounds", &o.rounds, "Alternations between Convoy and MPI with --beside-mpi",
           {.value = "N", .minimum = 1, .maximum = 1000});
  line.add("json", &o.json, "Result file (JSON), written by rank 0", {.value = "FILE"});
  line.add("output_file", &o.csv, "Table as CSV, with the columns of nccl-tests, written by rank 0",
           {.short_name = 'F', .value = "FILE"});
  add_compute_flags(line, o.compute);
  add_devices_flag(line, o.job);
  line.add("ngpus", &o.ngpus, "GPUs per thread of nccl-tests: --devices is the product with --nthreads",
           {.short_name = 'g', .value = "N", .minimum = 1, .maximum = 256});
  line.add("nthreads", &o.nthreads, "Threads per process of nccl-tests",
           {.short_name = 't', .value = "N", .minimum = 1, .maximum = 256});
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
  check(error != std::errc::result_out_of_range, "{}: found {}, expected at most 1024G", flag, text);
  check(error == std::errc() && stop == end, "{}: found '{}', expected bytes: 8, 32K, 128M or 1G", flag,
        text);
  check(number >= 1, "{}: found {}, expected at least 1 byte", flag, text);
  check(number <= kMaxBytes >> shift, "{}: found {}, expected at most 1024G", flag, text);
  return number << shift;
}

std::vector<std::int64_t> sizes_between(std::int64_t min_size, std::int64_t max_size, std::int64_t step,
                                        std::optional<std::int64_t> factor) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = min_size; size <= max_size; size = factor ? size * *factor : size + step)
    sizes.push_back(size);  // no overflow: at most 2^40 times 2^20
  return sizes;
}

std::string nccl_type_name(DType dtype) { return name_in(kTypes, dtype, to_string(dtype)); }

CollectivePlan make_plan(CollectiveOptions& options, const CommandLine& line) {
  take_flags_of_nccl_tests(options);
  check(options.op == "sum", "--op: found '{}', expected sum, the only reduction of Convoy's communicators",
        options.op);
  check(!options.stepfactor || !line.given("stepbytes"),
        "--stepfactor {}: found --stepbytes {} too, expected only one of them",
        options.stepfactor.value_or(0), options.stepbytes);
  check(!line.given("rounds") || options.beside_mpi, "--rounds {}: requires --beside-mpi", options.rounds);
  const std::int64_t min_size = parse_bytes("--minbytes", options.minbytes);
  const std::int64_t max_size = parse_bytes("--maxbytes", options.maxbytes);
  check(min_size <= max_size, "--minbytes {}: more than --maxbytes {}", options.minbytes, options.maxbytes);
  const std::int64_t step = parse_bytes("--stepbytes", options.stepbytes);
  const bool is_factor = options.stepfactor.has_value();
  constexpr std::int64_t kMaxSizes = 100000;
  check(
      is_factor || (max_size - min_size) / step < kMaxSizes,
      "--stepbytes {}: found {} sizes from {} to {}, expected at most {}; use --stepfactor for larger steps",
      options.stepbytes, (max_size - min_size) / step + 1, options.minbytes, options.maxbytes, kMaxSizes);
  CollectivePlan plan = options.plan;
  plan.collectives = parse_collectives(options.collective);
  plan.min_bytes = min_size;
  plan.max_bytes = max_size;
  plan.ranks_per_process = options.job.devices.value_or(1);
  plan.sizes = sizes_between(min_size, max_size, step, options.stepfactor);
  plan.step = options.stepfactor.value_or(step);
  plan.is_factor = is_factor;
  plan.root = parse_root(options.root);
  if (options.beside_mpi) plan.mpi_rounds = options.rounds;
  check(!line.given("root") || std::ranges::any_of(plan.collectives, has_root),
        "--root {}: only broadcast has a root, found --collective {}", options.root, options.collective);
  for (const auto& [dtype, name] : kTypes)
    if (options.datatype == name || options.datatype == "all") plan.dtypes.push_back(dtype);
  if (options.beside_mpi) check_beside_mpi(plan, options);
  return plan;
}

std::vector<Case> cases_of(const CollectivePlan& plan, Collective collective, int ranks) {
  std::vector<int> roots = {-1};
  if (has_root(collective)) {
    check(plan.root.value_or(0) < ranks, "--root: found {}, expected a rank below the world size of {}",
          plan.root.value_or(0), ranks);
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
