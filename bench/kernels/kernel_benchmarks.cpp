#include "bench/kernels/kernel_benchmarks.h"

#include <benchmark/benchmark.h>

#include <regex>

#include "bench/kernels/count_table.h"
#include "bench/kernels/op_run.h"
#include "convoy/apps/common/machine.h"
#include "convoy/kernels/base/check.h"
#include "convoy/version.h"

namespace convoy::bench {
namespace {

using testing::ModelCase;

/// Google Benchmark's filter, evaluated before anything is measured.
class Filter {
 public:
  explicit Filter(const std::string& text) : text_(text) {
    std::string pattern = text.empty() || text == "all" ? "." : text;
    negative_ = pattern.starts_with('-');
    if (negative_) pattern.erase(0, 1);
    try {
      pattern_.assign(pattern, std::regex::extended);
    } catch (const std::regex_error&) {
      fail<UsageError>("--benchmark_filter: found '{}', expected a regular expression", text);
    }
  }
  bool keeps(const std::string& row) const {
    return std::regex_search(full_name(row), pattern_) != negative_;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::regex pattern_;
  bool negative_ = false;
};

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
  const double seconds = measure(state, device, calls, [&](int count) {
    return seconds_of(device, [&] {
      for (int i = 0; i < count; ++i) run();
    });
  });
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

std::string forward_name(const ModelCase& c) { return c.name() + "/forward"; }
std::string backward_name(const ModelCase& c) { return c.name() + "/backward"; }

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

double mega(std::int64_t count) { return static_cast<double>(count) / 1e6; }

}  // namespace

/// A cache of the most recently requested op. The two directions of an op are adjacent, and Google Benchmark
/// starts each of them several times.
class KernelBenchmarks::LastOp {
 public:
  const OpRun& on(const DeviceContext& device, const ModelCase& c) {
    if (name_ != c.name()) {
      run_.reset();  // releases memory before the next op allocates
      run_ = std::make_unique<OpRun>(c, device);
      name_ = c.name();
    }
    return *run_;
  }

 private:
  std::string name_;
  std::unique_ptr<OpRun> run_;
};

std::string full_name(const std::string& row) { return row + "/manual_time"; }

KernelBenchmarks::KernelBenchmarks(std::vector<KernelRow> kernels, std::vector<ModelCase> ops,
                                   const std::string& filter_text)
    : copy_(kernels.front()) {
  const Filter filter(filter_text);
  for (KernelRow& row : kernels)
    if (filter.keeps(row.name)) kernels_.push_back(std::move(row));
  for (ModelCase& c : ops) {
    const bool forward = filter.keeps(forward_name(c));
    const bool backward = has_backward_row(c) && filter.keeps(backward_name(c));
    if (forward || backward)
      ops_.push_back({.model_case = std::move(c), .forward = forward, .backward = backward});
  }
  check(!kernels_.empty() || !ops_.empty(),
        "--benchmark_filter: found '{}', which matches no row; --table and "
        "--benchmark_list_tests list the rows",
        filter.text());
}

std::string KernelBenchmarks::table() const {
  std::string text;
  if (!kernels_.empty())
    text += "| kernel | largest argument | reads, MB | writes, MB |\n|---|---|---|---|\n";
  for (const KernelRow& row : kernels_)
    text += fmt::format("| {} | {} | {:.2f} | {:.2f} |\n", row.name, row.shape, mega(row.bytes_read),
                        mega(row.bytes_written));
  if (!kernels_.empty() && !ops_.empty()) text += '\n';
  if (!ops_.empty())
    text +=
        "| op | arguments | per step | forward, MFLOP | forward, MB | backward, MFLOP | backward, MB |\n"
        "|---|---|---|---|---|---|---|\n";
  for (const Op& op : ops_) {
    const ModelCase& c = op.model_case;
    text += fmt::format("| {} | {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", c.name(), shapes_of(c),
                        c.count, mega(c.cost.forward.flops), mega(c.cost.forward.bytes),
                        mega(c.cost.backward.flops), mega(c.cost.backward.bytes));
  }
  return text;
}

std::string KernelBenchmarks::counts(const DeviceContext& device) const {
  std::string text = count_head();
  for (const KernelRow& row : kernels_) text += count_line(row, device);
  for (const Op& op : ops_) {
    if (op.forward) text += count_line(op.model_case, true, device);
    if (op.backward) text += count_line(op.model_case, false, device);
  }
  return text;
}

void KernelBenchmarks::measure_ceilings(const DeviceContext& device) {
  device_ = device;
  ceilings_.bytes_per_second = measure_copy(device, copy_);
  if (!ops_.empty())
    ceilings_.flops_per_second = measure_gemm(device, ops_.front().model_case.arguments.front().dtype);
}

void KernelBenchmarks::describe(const ComputeOptions& compute, const Precision& precision,
                                std::int64_t batch) const {
  const Machine host = this_machine();
  benchmark::AddCustomContext("version", kVersion);
  benchmark::AddCustomContext("processor", host.processor);
  benchmark::AddCustomContext("system", host.system);
  std::vector<std::string> libraries = host.libraries;
  if (!device_->hardware().empty()) libraries.push_back(device_->hardware());
  benchmark::AddCustomContext("libraries", joined(libraries));
  benchmark::AddCustomContext("device", device_->name());
  benchmark::AddCustomContext("threads", fmt::format("{}", compute.threads));
  benchmark::AddCustomContext("copy_GB/s", fmt::format("{:.6g}", ceilings_.bytes_per_second / 1e9));
  if (ops_.empty()) return;
  const std::int64_t n = gemm_size(*device_);
  benchmark::AddCustomContext("precision", precision.name);
  benchmark::AddCustomContext("batch_size", fmt::format("{}", batch));
  benchmark::AddCustomContext("product_GFLOP/s", fmt::format("{:.6g}", ceilings_.flops_per_second / 1e9));
  benchmark::AddCustomContext("product", fmt::format("{}x{} times {}x{}", n, n, n, n));
}

void KernelBenchmarks::register_all() {
  const auto add = [](const std::string& name, const auto& run) {
    benchmark::RegisterBenchmark(name.c_str(), run)->UseManualTime()->Unit(benchmark::kMicrosecond);
  };
  for (const KernelRow& row : kernels_)
    add(row.name, [this, &row, calls = 0](benchmark::State& state) mutable {
      measure_kernel(state, *device_, row, ceilings_, calls);
    });
  last_ = std::make_shared<LastOp>();
  const auto add_op = [&](const std::string& name, const ModelCase& c, bool is_forward) {
    add(name, [this, &c, is_forward, calls = 0](benchmark::State& state) mutable {
      measure_op(state, *device_, last_->on(*device_, c), c, is_forward, ceilings_, calls);
    });
  };
  for (const Op& op : ops_) {
    if (op.forward) add_op(forward_name(op.model_case), op.model_case, true);
    if (op.backward) add_op(backward_name(op.model_case), op.model_case, false);
  }
}

}  // namespace convoy::bench
