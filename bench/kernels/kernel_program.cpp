// convoy-bench-kernels: measures kernels relative to a copy, and the ops of networks relative to the
// roofline.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <regex>

#include "bench/kernels/op_run.h"
#include "convoy/apps/common/machine.h"
#include "convoy/apps/flags/compute.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/bench/kernels/user_op.h"
#include "convoy/kernels/base/check.h"
#include "convoy/version.h"
#include "tests/cuda_emulator/counted/counted_launch.h"
#include "tests/cuda_emulator/counted/gpu_model.h"

namespace convoy::bench {
namespace {

using testing::ModelCase;

struct Flags {
  ComputeOptions compute;
  std::string precision = "fp32";
  std::int64_t batch = 128;
  std::int64_t elements = std::int64_t{1} << 25;
  bool table = false;
  bool count = false;
};

/// Returns a function that says whether Google Benchmark's filter keeps a row, before anything is measured: an extended
/// regular expression, "" for all rows, and a leading '-' to invert the match.
std::function<bool(const std::string& row)> filter_of(const std::string& text) {
  std::string pattern = text.empty() || text == "all" ? "." : text;
  const bool is_negative = pattern.starts_with('-');
  if (is_negative) pattern.erase(0, 1);
  try {
    return [is_negative, regex = std::regex(pattern, std::regex::extended)](const std::string& row) {
      return std::regex_search(row + "/manual_time", regex) != is_negative;  // as Google Benchmark names it
    };
  } catch (const std::regex_error&) {
    fail<UsageError>("--benchmark_filter: found '{}', expected a regular expression", text);
  }
}

double bytes_of(const KernelRow& row) { return static_cast<double>(row.bytes_read + row.bytes_written); }

/// Measures batches of calls and reports each call to Google Benchmark as one iteration. `seconds(n)` runs n
/// calls and returns their time. Returns the mean seconds per call. `calls` is the batch size: 0 at first,
/// then chosen once, because all repetitions must have the same number of iterations.
double measure(benchmark::State& state, const DeviceContext& device, int& calls,
               const std::function<double(int)>& seconds) {
  if (calls == 0) {
    // The whole duration of a call counts here, including untimed work such as the forward before a backward.
    calls = calls_to_time(device, seconds_of(device, [&] { seconds(1); }));
    seconds(calls);  // lets the allocator reserve memory for a whole batch
  }
  double total = 0;
  while (state.KeepRunningBatch(calls)) {
    const double batch = seconds(calls);
    state.SetIterationTime(batch);
    total += batch;
  }
  return total / static_cast<double>(state.iterations());
}

void measure_kernel(benchmark::State& state, const DeviceContext& device, const KernelRow& row,
                    const Ceilings& ceilings, int& calls) {
  const std::function<void()> run = row.prepare(device);
  run();  // initializes plans and caches
  const double seconds =
      measure(state, device, calls, [&](int count) { return seconds_of(device, run, count); });
  const double bandwidth = bytes_of(row) / seconds;
  state.counters["GB/s"] = bandwidth / 1e9;
  state.counters["of_copy"] = bandwidth / ceilings.bytes_per_second;
  if (row.flops > 0) state.counters["GFLOP/s"] = static_cast<double>(row.flops) / seconds / 1e9;
}

std::string shapes_of(const ModelCase& c) {
  std::vector<std::string> shapes;
  for (const Shape& shape : c.op.inputs) shapes.push_back(shape.text());
  return fmt::format("{}", fmt::join(shapes, " "));
}

void measure_op(benchmark::State& state, const DeviceContext& device, const OpRun& run, const ModelCase& c,
                bool is_forward, const Ceilings& ceilings, int& calls) {
  const double seconds = measure(state, device, calls, [&](int count) {
    return is_forward ? run.forward_seconds(count) : run.backward_seconds(count);
  });
  const Cost& cost = is_forward ? c.cost.forward : c.cost.backward;
  state.SetLabel(shapes_of(c));
  state.counters["GB/s"] = static_cast<double>(cost.bytes) / seconds / 1e9;
  state.counters["GFLOP/s"] = static_cast<double>(cost.flops) / seconds / 1e9;
  state.counters["of_ceiling"] = ceilings.seconds_of(cost) / seconds;
  state.counters["per_step"] = c.count;
}

/// Returns whether the op's backward is measured. It is not if only the forward moves data (as of an
/// addition): each backward of microseconds would need an untimed forward of milliseconds.
bool has_backward_row(const ModelCase& c) { return c.cost.backward.bytes > 0 || c.cost.forward.bytes == 0; }

std::string row_name(const ModelCase& c, bool is_forward) {
  return c.name() + (is_forward ? "/forward" : "/backward");
}

double mega(std::int64_t count) { return static_cast<double>(count) / 1e6; }

using Launches = std::vector<CountedLaunch>;

/// Returns the line of a row. `necessary` are the bytes that it must read and write.
std::string count_line(const std::string& name, std::int64_t necessary, const Launches& launches) {
  if (launches.empty()) return "";
  const GpuModel gpu = h100_model();
  CountedLaunch sum;
  double seconds = 0;
  for (const CountedLaunch& launch : launches) {
    sum += launch;
    seconds += predicted_seconds(gpu, launch);
  }
  const std::int64_t sectors = sum.loads.sectors + sum.stores.sectors;
  const std::string accesses =  // unknown of libraries
      sectors == 0
          ? "| | | |"
          : fmt::format("{:.2f} | {} | {:.1f} % | {:.2f} | {:.1f}", mega(sum.loads.bytes + sum.stores.bytes),
                        sectors, 100 * sum.sector_efficiency(), sum.bank_conflicts(), sum.active_lanes());
  return fmt::format("| {} | {} | {:.2f} | {:.2f} | {} | {:.1f} |\n", name, launches.size(), mega(necessary),
                     mega(sum.bytes()), accesses, 1e6 * seconds);
}

std::string count_line(const KernelRow& row, const DeviceContext& device) {
  const std::function<void()> run = row.prepare(device);
  run();  // initializes plans and caches
  device.synchronize();
  const Launches launches = counted_launches([&] {
    run();
    device.synchronize();
  });
  return count_line(row.name, row.bytes_read + row.bytes_written, launches);
}

std::string count_line(const testing::ModelCase& op, bool is_forward, const DeviceContext& device) {
  const OpRun run(op, device);
  const Launches forward = counted_launches([&] { run.forward_seconds(1); });
  if (is_forward) return count_line(row_name(op, true), op.cost.forward.bytes, forward);
  Launches backward = counted_launches([&] { run.backward_seconds(1); });
  // A forward comes first.
  backward.erase(backward.begin(), backward.begin() + static_cast<std::ptrdiff_t>(forward.size()));
  return count_line(row_name(op, false), op.cost.backward.bytes, backward);
}

/// The selected kernels and ops.
struct Selection {
  struct Op {
    ModelCase model_case;
    bool forward = false, backward = false;  // whether the filter selects the direction
  };
  std::vector<KernelRow> kernels;
  std::vector<Op> ops;
};

/// Returns the rows whose names match the filter. Throws UsageError if there is none.
Selection select(std::vector<KernelRow> kernels, std::vector<ModelCase> ops, const std::string& filter_text) {
  const auto keeps = filter_of(filter_text);
  Selection selection;
  for (KernelRow& row : kernels)
    if (keeps(row.name)) selection.kernels.push_back(std::move(row));
  for (ModelCase& c : ops) {
    const bool forward = keeps(row_name(c, true));
    const bool backward = has_backward_row(c) && keeps(row_name(c, false));
    if (forward || backward)
      selection.ops.push_back({.model_case = std::move(c), .forward = forward, .backward = backward});
  }
  check(!selection.kernels.empty() || !selection.ops.empty(),
        "--benchmark_filter: found '{}', which matches no row; --table and "
        "--benchmark_list_tests list the rows",
        filter_text);
  return selection;
}

/// Returns the bytes and FLOPs of each row as Markdown tables.
std::string table_of(const Selection& selection) {
  const auto& [kernels, ops] = selection;
  std::string text;
  if (!kernels.empty()) text += "| kernel | largest argument | reads, MB | writes, MB |\n|---|---|---|---|\n";
  for (const KernelRow& row : kernels)
    text += fmt::format("| {} | {} | {:.2f} | {:.2f} |\n", row.name, row.shape, mega(row.bytes_read),
                        mega(row.bytes_written));
  if (!kernels.empty() && !ops.empty()) text += '\n';
  if (!ops.empty())
    text +=
        "| op | arguments | per step | forward, MFLOP | forward, MB | backward, MFLOP | backward, MB |\n"
        "|---|---|---|---|---|---|---|\n";
  for (const Selection::Op& op : ops) {
    const ModelCase& c = op.model_case;
    text += fmt::format("| {} | {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", c.name(), shapes_of(c),
                        c.count, mega(c.cost.forward.flops), mega(c.cost.forward.bytes),
                        mega(c.cost.backward.flops), mega(c.cost.backward.bytes));
  }
  return text;
}

/// Runs each row on an emulated GPU and returns what its kernels access, as a Markdown table.
std::string counts_of(const Selection& selection, const DeviceContext& device) {
  std::string text = fmt::format(
      "| row | launches | necessary MB | moved MB | asked MB | sectors | efficiency | wavefronts | lanes | us on an "
      "{}, predicted |\n|---|---|---|---|---|---|---|---|---|---|\n",
      h100_model().name);
  skip_libraries();
  for (const KernelRow& row : selection.kernels) text += count_line(row, device);
  for (const Selection::Op& op : selection.ops) {
    if (op.forward) text += count_line(op.model_case, true, device);
    if (op.backward) text += count_line(op.model_case, false, device);
  }
  return text;
}

/// Adds machine, versions, settings and ceilings to the context that Google Benchmark writes.
void describe(const Flags& flags, const DeviceContext& device, const Ceilings& ceilings, bool has_ops) {
  const Machine host = this_machine();
  benchmark::AddCustomContext("version", kVersion);
  benchmark::AddCustomContext("processor", host.processor);
  benchmark::AddCustomContext("system", host.system);
  std::vector<std::string> libraries = host.libraries;
  if (!device.hardware().empty()) libraries.push_back(device.hardware());
  benchmark::AddCustomContext("libraries", fmt::format("{}", fmt::join(libraries, ", ")));
  benchmark::AddCustomContext("device", device.name());
  benchmark::AddCustomContext("threads", fmt::format("{}", flags.compute.threads));
  benchmark::AddCustomContext("copy_GB/s", fmt::format("{:.6g}", ceilings.bytes_per_second / 1e9));
  if (!has_ops) return;
  const std::int64_t n = gemm_size(device);
  benchmark::AddCustomContext("precision", flags.precision);
  benchmark::AddCustomContext("batch_size", fmt::format("{}", flags.batch));
  benchmark::AddCustomContext("product_GFLOP/s", fmt::format("{:.6g}", ceilings.flops_per_second / 1e9));
  benchmark::AddCustomContext("product", fmt::format("{}x{} times {}x{}", n, n, n, n));
}

/// The device and its ceilings, and the most recently requested op: the two directions of an op are adjacent, and Google
/// Benchmark starts each of them several times.
struct Measured {
  std::optional<DeviceContext> device;
  Ceilings ceilings;
  std::string name;
  std::unique_ptr<OpRun> run;

  const OpRun& op(const ModelCase& c) {
    if (name != c.name()) {
      run.reset();  // releases memory before the next op allocates
      run = std::make_unique<OpRun>(c, *device);
      name = c.name();
    }
    return *run;
  }
};

/// Registers all selected rows. The arguments must outlive RunSpecifiedBenchmarks().
void register_all(const Selection& selection, Measured& measured) {
  const auto add = [](const std::string& name, const auto& run) {
    benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMicrosecond);
  };
  for (const KernelRow& row : selection.kernels)
    add(row.name, [&measured, &row, calls = 0](benchmark::State& state) mutable {
      measure_kernel(state, *measured.device, row, measured.ceilings, calls);
    });
  const auto add_op = [&](const ModelCase& c, bool is_forward) {
    add(row_name(c, is_forward), [&measured, &c, is_forward, calls = 0](benchmark::State& state) mutable {
      measure_op(state, *measured.device, measured.op(c), c, is_forward, measured.ceilings, calls);
    });
  };
  for (const Selection::Op& op : selection.ops) {
    if (op.forward) add_op(op.model_case, true);
    if (op.backward) add_op(op.model_case, false);
  }
}

void add_flags(CommandLine& line, Flags& flags) {
  line.group("Benchmark");
  line.add("batch-size", &flags.batch, "Batch size of the ops (images)",
           {.value = "N", .minimum = 1, .maximum = 65536});
  line.add("elements", &flags.elements,
           "Approximate array size of the kernel rows (elements); should exceed the caches",
           {.value = "N", .minimum = 1, .maximum = 1e10});
  line.add("table", &flags.table, "Print the bytes and FLOPs of each kernel and op and exit",
           {.in_config = false});
  line.add(
      "count", &flags.count,
      "Print what the kernels of each row access on an emulated GPU, and the time that a model of an H100 "
      "predicts, and exit; needs --device cuda and a build whose emulated GPUs count",
      {.in_config = false});
  add_compute_flags(line, flags.compute);
  line.add("precision", &flags.precision, "Compute precision of the ops; kernel rows are always fp32",
           {.value = "NAME", .choices = precision_names()});
}

/// Throws UsageError for an unknown value of a flag of Google Benchmark, which would print its usage and exit
/// with code 0.
void check_word(const std::string& argument, const std::string& flag, const std::vector<std::string>& words) {
  if (!argument.starts_with(flag + "=")) return;
  const std::string word = argument.substr(flag.size() + 1);
  check(std::ranges::find(words, word) != words.end(), "{}: found '{}', expected one of {}", flag, word,
        fmt::join(words, ", "));
}

/// Passes Google Benchmark's flags to Google Benchmark and all others to `line`, which rejects unknown flags.
/// Sets `lists` if only the names are to be listed. Returns false if --help or --version was given.
bool parse(int argc, char** argv, CommandLine& line, bool& lists) {
  std::vector<char*> theirs = {argv[0]}, ours = {argv[0]};
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool is_theirs = argument.starts_with("--benchmark_");
    (is_theirs ? theirs : ours).push_back(argv[i]);
    lists = lists || argument == "--benchmark_list_tests" || argument == "--benchmark_list_tests=true";
    for (const char* flag : {"--benchmark_format", "--benchmark_out_format"})
      check_word(argument, flag, {"console", "json", "csv"});
  }
  int left = static_cast<int>(theirs.size());
  benchmark::Initialize(&left, theirs.data());
  ours.insert(ours.end(), theirs.begin() + 1, theirs.begin() + left);
  return line.parse(static_cast<int>(ours.size()), ours.data());
}

/// Returns the cost that the op states, or else the bytes that it must read and write.
OpCost cost_of(const OpCost& stated, const std::vector<Variable>& x, const Variable& y) {
  if (stated.forward.bytes > 0 || stated.forward.flops > 0) return stated;
  const auto bytes_of = [](const Variable& v) { return static_cast<std::int64_t>(v.value().bytes()); };
  OpCost cost;
  for (const Variable& argument : x) cost.forward.bytes += bytes_of(argument);
  cost.backward.bytes = 2 * cost.forward.bytes + bytes_of(y);
  cost.forward.bytes += bytes_of(y);
  return cost;
}

testing::ModelCase case_of(const UserOp& user, DType dtype) {
  check(user.op != nullptr && !user.inputs.empty(), "op '{}': found no function or no inputs, expected both",
        user.name);
  testing::ModelCase result{
      .network = "user",
      .op = {.name = user.name,
             .inputs = user.inputs,
             .op = user.op,
             .domain = {.bound = (user.high - user.low) / 2, .center = (user.low + user.high) / 2}},
      .arguments = std::vector<testing::Argument>(user.inputs.size(), {.dtype = dtype})};
  std::vector<Variable> x;
  for (const Shape& shape : user.inputs)
    x.emplace_back(Tensor::empty(shape, dtype, Device::meta()), /*requires_grad=*/true);
  const Variable y = user.op(x);
  result.cost = cost_of(recorded_cost(y), x, y);
  return result;
}

int run(const std::string& program, int argc, char** argv, const std::vector<UserOp>& user_ops) {
  Flags flags;
  bool lists = false;
  CommandLine line(
      program,
      "Measures the bandwidth of each kernel relative to a copy, and each op in both directions "
      "relative to the bandwidth and GEMM throughput of the device. Also takes the flags of Google "
      "Benchmark (--benchmark_filter=REGEX, --benchmark_format=json, --benchmark_repetitions=N, "
      "...).");
  add_flags(line, flags);
  if (!parse(argc, argv, line, lists)) return 0;

  check(!(flags.count && flags.table), "found --count and --table, expected one of them");
  const Precision precision = parse_precision(flags.precision);
  std::vector<testing::ModelCase> ops;
  for (const UserOp& user : user_ops) ops.push_back(case_of(user, precision.compute));
  for (testing::ModelCase& op : testing::all_model_cases({.batch = flags.batch, .dtype = precision.compute}))
    ops.push_back(std::move(op));
  std::vector<KernelRow> kernels = kernel_rows(flags.elements);
  if (flags.compute.device == "cuda")
    for (KernelRow& row : convolution_rows(flags.batch)) kernels.push_back(std::move(row));
  const KernelRow copy = kernels.front();
  const Selection selection = select(std::move(kernels), std::move(ops), benchmark::GetBenchmarkFilter());
  if (flags.table) {
    fmt::print("{}", table_of(selection));
    return 0;
  }
  check(!flags.count || flags.compute.device == "cuda", "--count: found --device {}, expected cuda",
        flags.compute.device);
  Measured measured;
  if (!lists || flags.count) {
    measured.device = open_device(flags.compute, precision);
    check_precision(precision, *measured.device);
  }
  if (flags.count) {
    fmt::print("{}", counts_of(selection, *measured.device));
    return 0;
  }
  if (!lists) {
    if (const auto warning = busy_machine_warning())
      fmt::print(stderr, "{}: warning: {}\n", program, *warning);
    measured.ceilings.bytes_per_second = measure_copy(*measured.device, copy);
    if (!selection.ops.empty())
      measured.ceilings.flops_per_second =
          measure_gemm(*measured.device, selection.ops.front().model_case.arguments.front().dtype);
    describe(flags, *measured.device, measured.ceilings, !selection.ops.empty());
  }
  register_all(selection, measured);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace

int run_kernel_benchmarks(const std::string& program, int argc, char** argv, const std::vector<UserOp>& ops) {
  return run_main(program.c_str(), [&] { return run(program, argc, argv, ops); });
}

}  // namespace convoy::bench
