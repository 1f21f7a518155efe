// counted_launches() in a build whose GPUs are emulated.
#include "bench/counted/counted_launch.h"
#include "convoy/kernels/base/check.h"
#include "tests/cuda_emulator/counting/source_lines.h"
#include "tests/cuda_emulator/runtime/emulator.h"

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
  emulator::SharedAccesses shared = all.shared_loads;
  shared += all.shared_stores;
  return {.kernel = std::move(kernel),
          .blocks = std::int64_t{counts.grid.x} * counts.grid.y * counts.grid.z,
          .block_threads = static_cast<int>(counts.block.x * counts.block.y * counts.block.z),
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

std::vector<CountedLaunch> counted_launches(const std::function<void()>& run) {
  check(can_count_launches(),
        "--count: the kernels of this program were not compiled for counting; only g++ can, without "
        "sanitizers and shared libraries, as in 'cmake --preset test'");
  emulator::start_counting();
  run();
  const std::vector<emulator::LaunchCounts> counts = emulator::stop_counting();
  std::vector<const void*> kernels;
  for (const emulator::LaunchCounts& launch : counts) kernels.push_back(launch.kernel);
  const std::vector<std::vector<emulator::SourceLine>> names = emulator::source_lines(kernels);
  std::vector<CountedLaunch> launches;
  for (std::size_t i = 0; i < counts.size(); ++i)
    launches.push_back(converted(counts[i], names[i].empty() ? "?" : names[i].back().function));
  return launches;
}

}  // namespace convoy::bench
