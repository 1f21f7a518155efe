// convoy-bench-kernels: the bandwidth of each kernel, beside a copy of the same size in the same process.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>

#include "apps/command_line.h"
#include "apps/compute.h"
#include "apps/run_main.h"
#include "bench/kernel_rows.h"
#include "kernels/runtime/check.h"

namespace convoy::bench {
namespace {

constexpr int kCalls = 20;  // enqueued between two synchronizations: a launch costs less than a kernel takes

double seconds_a_call(const Device& device, const std::function<void()>& run) {
  device.synchronize();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) run();
  device.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kCalls;
}

double bytes_of(const KernelRow& row) { return static_cast<double>(row.bytes_read + row.bytes_written); }

/// Bytes a second of the copy: what the others are held against. The median of seven, after a warm-up.
double copy_bandwidth(const Device& device, const KernelRow& copy) {
  const std::function<void()> run = copy.prepare(device);
  seconds_a_call(device, run);
  std::vector<double> seconds(7);
  for (double& one : seconds) one = seconds_a_call(device, run);
  std::nth_element(seconds.begin(), seconds.begin() + 3, seconds.end());
  return bytes_of(copy) / seconds[3];
}

void print_bytes(const std::vector<KernelRow>& rows) {
  fmt::print("| kernel | largest argument | reads, MB | writes, MB |\n|---|---|---|---|\n");
  for (const KernelRow& row : rows)
    fmt::print("| {} | {} | {:.2f} | {:.2f} |\n", row.name, row.shape,
               static_cast<double>(row.bytes_read) / 1e6, static_cast<double>(row.bytes_written) / 1e6);
}

void measure(benchmark::State& state, const Device& device, const KernelRow& row, double copy) {
  const std::function<void()> run = row.prepare(device);
  seconds_a_call(device, run);
  double total = 0;
  for (auto _ : state) {
    const double seconds = seconds_a_call(device, run);
    state.SetIterationTime(seconds);
    total += seconds;
  }
  const double bandwidth = bytes_of(row) * static_cast<double>(state.iterations()) / total;
  state.counters["GB/s"] = bandwidth / 1e9;
  state.counters["of_copy"] = bandwidth / copy;
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);  // takes its own --benchmark_… flags out
  ComputeOptions compute;
  std::int64_t elements = std::int64_t{1} << 25;
  bool table = false;
  CommandLine line("convoy-bench-kernels",
                   "Measures the bandwidth of each kernel beside a copy. Takes Google Benchmark's flags too "
                   "(--benchmark_filter=REGEX, --benchmark_format=json, --benchmark_repetitions=N, …).");
  add_compute_flags(line, compute);
  line.add("elements", &elements, "About how many elements each array has: more than the caches hold",
           {.value = "N", .least = 1, .most = 1e10});
  line.add("table", &table, "Print what each kernel reads and writes, and measure nothing");
  if (!line.parse(argc, argv)) return 0;

  const std::vector<KernelRow> rows = kernel_rows(elements);
  if (table) {
    print_bytes(rows);
    return 0;
  }
  const Device device = open_device(compute, parse_precision("fp32"));
  const double copy = copy_bandwidth(device, rows.front());
  benchmark::AddCustomContext("device", device.name());
  benchmark::AddCustomContext("copy_GB/s", fmt::format("{:.1f}", copy / 1e9));
  for (const KernelRow& row : rows)
    benchmark::RegisterBenchmark(row.name.c_str(),
                                 [&](benchmark::State& state) { measure(state, device, row, copy); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace
}  // namespace convoy::bench

int main(int argc, char** argv) {
  return convoy::run_main("convoy-bench-kernels", [&] { return convoy::bench::run(argc, argv); });
}
