// The functions behind include/cuda_runtime.h: kernel launches, and the operations that kernels call.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <utility>

#include "emulator/counting/access_counter.h"
#include "emulator/runtime/block.h"
#include "emulator/runtime/device_clock.h"
#include "emulator/runtime/runtime.h"

namespace convoy::emulator {
namespace {

/// Checks the limits that all GPUs of the last ten years share.
bool is_valid(dim3 grid, dim3 block) {
  constexpr std::uint64_t kMaxThreads = 1024;
  constexpr unsigned kMaxBlockZ = 64;            // threads of a block
  constexpr unsigned kMaxGridX = 2'147'483'647;  // blocks of a grid
  constexpr unsigned kMaxGridYZ = 65'535;        // blocks of a grid
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  return threads >= 1 && block.x <= kMaxThreads && block.y <= kMaxThreads && block.z <= kMaxBlockZ &&
         threads <= kMaxThreads && grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= kMaxGridX &&
         grid.y <= kMaxGridYZ && grid.z <= kMaxGridYZ;
}

}  // namespace

cudaError_t submit(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread) {
  return on_stream(config.stream, [&](Driver& driver, EmulatedStream& stream) {
    if (!is_valid(config.gridDim, config.blockDim)) return cudaErrorInvalidConfiguration;
    if (config.dynamicSmemBytes > kMaxSharedBytes) return cudaErrorInvalidValue;
    bool starts_early = false;
    for (const cudaLaunchAttribute* attribute = config.attrs; attribute < config.attrs + config.numAttrs;
         ++attribute)
      if (attribute->id == cudaLaunchAttributeProgrammaticStreamSerialization)
        starts_early = attribute->val.programmaticStreamSerializationAllowed != 0;
    driver.launch(stream,
                  {.grid = config.gridDim,
                   .block = config.blockDim,
                   .shared_bytes = config.dynamicSmemBytes,
                   .thread = std::move(thread),
                   .starts_early = starts_early},
                  kernel);
    return cudaSuccess;
  });
}

void wait_for_previous_kernel() { BlockRunner::current().wait_for_previous_kernel(); }

void block_barrier(Where where) { BlockRunner::current().barrier(where); }

const std::uint64_t* warp_converge(unsigned mask, std::uint64_t bits, Where where) {
  return BlockRunner::current().converge(mask, bits, where);
}

Segment segment_of_this_lane(int width, Where where) {
  if (width < 1 || width > warpSize || (width & (width - 1)) != 0)
    BlockRunner::current().fault(
        fmt::format("found a width of {}, expected a power of two up to {}", width, warpSize), where);
  const auto lanes = static_cast<unsigned>(width);
  const unsigned lane = BlockRunner::current().lane();
  const unsigned first = lane & ~(lanes - 1);
  return {.lane = lane, .first = first, .last = first + lanes - 1};
}

void report_foreign_lane(unsigned mask, unsigned source, Where where) {
  BlockRunner::current().fault(
      fmt::format("reads the value of lane {}, which is not in mask {:#x}", source, mask), where);
}

void count_atomic(const void* address, std::size_t bytes, const void* next) {
  if (AccessCounter* const counter = AccessCounter::current())
    counter->atomic(address, bytes, static_cast<const char*>(next) - 1);
}

void fence() {
  if (AccessCounter* const counter = AccessCounter::current()) counter->fence();
}

long long device_nanoseconds() { return static_cast<long long>(device_ms() * 1e6); }

void advance_device(unsigned nanoseconds) { simulate_device_ms(0, nanoseconds * 1e-6); }

void trap(Where where) { BlockRunner::current().fault("__trap()", where); }

}  // namespace convoy::emulator
