// convoy-bench-kernels: measures kernels relative to a copy, and the ops of networks relative to the
// roofline.
#include <benchmark/benchmark.h>

#include <algorithm>

#include "bench/kernels/kernel_benchmarks.h"
#include "bench/kernels/kernel_rows.h"
#include "convoy/apps/common/machine.h"
#include "convoy/apps/flags/command_line.h"
#include "convoy/apps/flags/compute.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/bench/kernels/user_op.h"
#include "convoy/kernels/base/check.h"

namespace convoy::bench {
namespace {

struct Flags {
  ComputeOptions compute;
  std::string precision = "fp32";
  std::int64_t batch = 128;
  std::int64_t elements = std::int64_t{1} << 25;
  bool table = false;
  bool count = false;
};

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
  add_convolutions_flag(line, flags.compute);
  line.add("precision", &flags.precision, "Compute precision of the ops; kernel rows are always fp32",
           {.value = "NAME", .choices = precision_names()});
}

/// Throws UsageError for an unknown value of a flag of Google Benchmark, which would print its usage and exit
/// with code 0.
void check_word(const std::string& argument, const std::string& flag, const std::vector<std::string>& words) {
  if (!argument.starts_with(flag + "=")) return;
  const std::string word = argument.substr(flag.size() + 1);
  check(std::find(words.begin(), words.end(), word) != words.end(), "{}: found '{}', expected one of {}",
        flag, word, fmt::join(words, ", "));
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
  KernelBenchmarks benchmarks(std::move(kernels), std::move(ops), benchmark::GetBenchmarkFilter());
  if (flags.table) {
    fmt::print("{}", benchmarks.table());
    return 0;
  }
  if (flags.count) {
    check(flags.compute.device == "cuda", "--count: found --device {}, expected cuda", flags.compute.device);
    const DeviceContext device = open_device(flags.compute, precision);
    check_precision(precision, device);
    fmt::print("{}", benchmarks.counts(device));
    return 0;
  }
  if (!lists) {
    const DeviceContext device = open_device(flags.compute, precision);
    check_precision(precision, device);
    if (const auto warning = busy_machine_warning())
      fmt::print(stderr, "{}: warning: {}\n", program, *warning);
    benchmarks.measure_ceilings(device);
    benchmarks.describe(flags.compute, precision, flags.batch);
  }
  benchmarks.register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace

int run_kernel_benchmarks(const std::string& program, int argc, char** argv, const std::vector<UserOp>& ops) {
  return run_main(program.c_str(), [&] { return run(program, argc, argv, ops); });
}

}  // namespace convoy::bench
