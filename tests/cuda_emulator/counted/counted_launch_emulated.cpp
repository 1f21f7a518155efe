// Counting in a build whose GPUs are emulated.
#include <map>
#include <set>

#include "convoy/kernels/base/check.h"
#include "emulator/counting/source_lines.h"
#include "emulator/runtime/emulator.h"
#include "tests/cuda_emulator/counted/counted_launch.h"
#include "tests/cuda_emulator/vendor/vendor.h"

namespace convoy::bench {
namespace {

std::int64_t number(std::uint64_t count) { return static_cast<std::int64_t>(count); }

GlobalTraffic traffic(const emulator::GlobalAccesses& accesses) {
  return {.requests = number(accesses.requests),
          .sectors = number(accesses.sectors),
          .bytes = number(accesses.bytes),
          .lanes = number(accesses.lanes)};
}

CountedLaunch converted(const emulator::LaunchCounts& counts, std::string kernel) {
  const emulator::Accesses& all = counts.accesses;
  const emulator::SharedAccesses shared = all.shared();
  const bool is_kernel = counts.kernel != nullptr;
  return {.name = std::move(kernel),
          .is_kernel = is_kernel,
          .blocks = is_kernel ? std::int64_t{counts.grid.x} * counts.grid.y * counts.grid.z : 0,
          .block_threads = is_kernel ? static_cast<int>(counts.block.x * counts.block.y * counts.block.z) : 0,
          .flops = number(counts.flops),
          .element_bytes = static_cast<int>(counts.element_bytes),
          .bytes_read = number(counts.bytes_read),
          .bytes_written = number(counts.bytes_written),
          .loads = traffic(all.loads),
          .stores = traffic(all.stores),
          .shared_requests = number(shared.requests),
          .shared_wavefronts = number(shared.wavefronts),
          .minimum_wavefronts = number(shared.minimum),
          .barriers = number(counts.barriers),
          .atomics = number(all.atomics)};
}

}  // namespace

bool can_count_launches() { return emulator::can_count(); }

void require_counting() {
  check(
      can_count_launches(),
      "--count: the kernels of this program were not compiled for counting; only g++ can, without sanitizers "
      "and shared libraries, as in 'cmake --preset test'");
}

void start_counting_launches() {
  require_counting();
  emulator::start_counting();
}

std::vector<CountedLaunch> stop_counting_launches() {
  const std::vector<emulator::LaunchCounts> counts = emulator::stop_counting();
  std::set<const void*> distinct;
  for (const emulator::LaunchCounts& launch : counts) distinct.insert(launch.kernel);
  distinct.erase(nullptr);
  const std::vector<const void*> kernels(distinct.begin(), distinct.end());
  const std::vector<std::vector<emulator::SourceLine>> lines = emulator::source_lines(kernels);
  std::map<const void*, std::string> names;
  for (std::size_t i = 0; i < kernels.size(); ++i)
    if (!lines[i].empty()) names.emplace(kernels[i], lines[i].back().function);
  std::vector<CountedLaunch> launches;
  for (const emulator::LaunchCounts& launch : counts)
    launches.push_back(converted(launch, launch.kernel != nullptr ? names[launch.kernel] : launch.operation));
  return launches;
}

void skip_libraries() {
  emulator::VendorSettings settings = emulator::vendor_settings();
  settings.compute = false;
  emulator::set(settings);
  emulator::set_tensor_cores_compute(false);
}

}  // namespace convoy::bench
