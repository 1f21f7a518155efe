#include "bench/kernels/count_table.h"

#include <fmt/format.h>

#include "bench/counted/counted_launch.h"
#include "bench/counted/gpu_model.h"
#include "bench/kernels/op_run.h"

namespace convoy::bench {
namespace {

using Launches = std::vector<CountedLaunch>;

/// Returns the line of a row. `necessary` are the bytes that it must read and write.
std::string line(const std::string& name, std::int64_t necessary, const Launches& launches) {
  if (launches.empty()) return "";
  const GpuModel gpu = h100_model();
  CountedLaunch sum;
  double seconds = 0;
  for (const CountedLaunch& launch : launches) {
    sum += launch;
    seconds += predicted_seconds(gpu, launch);
  }
  const auto mega = [](std::int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  const std::int64_t sectors = sum.loads.sectors + sum.stores.sectors;
  const std::string accesses =  // unknown of libraries
      sectors == 0
          ? "| | | |"
          : fmt::format("{:.2f} | {} | {:.1f} % | {:.2f} | {:.1f}", mega(sum.loads.bytes + sum.stores.bytes),
                        sectors, 100 * sum.sector_efficiency(), sum.bank_conflicts(), sum.active_lanes());
  return fmt::format("| {} | {} | {:.2f} | {:.2f} | {} | {:.1f} |\n", name, launches.size(), mega(necessary),
                     mega(sum.bytes()), accesses, 1e6 * seconds);
}

}  // namespace

std::string count_head() {
  return fmt::format(
      "| row | launches | necessary MB | moved MB | asked MB | sectors | efficiency | wavefronts | lanes | us on an "
      "{}, predicted |\n|---|---|---|---|---|---|---|---|---|---|\n",
      h100_model().name);
}

std::string count_line(const KernelRow& row, const DeviceContext& device) {
  skip_libraries();
  const std::function<void()> run = row.prepare(device);
  run();  // initializes plans and caches
  device.synchronize();
  const Launches launches = counted_launches([&] {
    run();
    device.synchronize();
  });
  return line(row.name, row.bytes_read + row.bytes_written, launches);
}

std::string count_line(const testing::ModelCase& op, bool is_forward, const DeviceContext& device) {
  skip_libraries();
  const OpRun run(op, device);
  const Launches forward = counted_launches([&] { run.forward_seconds(1); });
  if (is_forward) return line(op.name() + "/forward", op.cost.forward.bytes, forward);
  Launches backward = counted_launches([&] { run.backward_seconds(1); });
  // A forward comes first.
  backward.erase(backward.begin(), backward.begin() + static_cast<std::ptrdiff_t>(forward.size()));
  return line(op.name() + "/backward", op.cost.backward.bytes, backward);
}

}  // namespace convoy::bench
