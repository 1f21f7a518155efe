// The functions behind include/cuda_runtime.h: kernel launches, and the operations that kernels call.
#include <cuda_runtime.h>

#include <utility>

#include "emulator/checking/access_checker.h"
#include "emulator/checking/own_code.h"
#include "emulator/counting/formatted.h"
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

cudaError_t submit(const cudaLaunchConfig_t& config, const void* kernel, KernelCall call, const char* name) {
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
                   .thread =
                       [call = std::move(call)] {
                         void* const bound = call.kernel.get();
                         const OwnCode program(/*is_own=*/false);
                         call.run(bound);
                       },
                   .starts_early = starts_early,
                   .name = name},
                  kernel);
    return cudaSuccess;
  });
}

void wait_for_previous_kernel() {
  const OwnCode scope;
  BlockRunner::current().wait_for_previous_kernel();
}

void block_barrier(Where where) {
  const OwnCode scope;
  BlockRunner::current().barrier(where);
}

std::uint64_t warp_exchange(unsigned mask, std::uint64_t bits, unsigned source, Where where) {
  const OwnCode scope;
  const std::uint64_t* const all = BlockRunner::current().converge(mask, bits, where);
  if ((mask >> source & 1u) == 0)
    BlockRunner::current().fault(
        formatted("reads the value of lane {}, which is not in mask {}", source, hexadecimal(mask)), where);
  return all[source];
}

unsigned warp_vote(unsigned mask, bool predicate, Where where) {
  const OwnCode scope;
  const std::uint64_t* const all = BlockRunner::current().converge(mask, predicate ? 1 : 0, where);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((mask >> lane & 1u) != 0 && all[lane] != 0) votes |= 1u << lane;
  return votes;
}

void warp_barrier(unsigned mask, Where where) {
  const OwnCode scope;
  BlockRunner::current().converge(mask, 0, where, /*orders_memory=*/true);
}

Segment segment_of_this_lane(int width, Where where) {
  const OwnCode scope;
  if (width < 1 || width > warpSize || (width & (width - 1)) != 0)
    BlockRunner::current().fault(
        formatted("found a width of {}, expected a power of two up to {}", width, warpSize), where);
  const auto lanes = static_cast<unsigned>(width);
  const unsigned lane = BlockRunner::current().lane();
  const unsigned first = lane & ~(lanes - 1);
  return {.lane = lane, .first = first, .last = first + lanes - 1};
}

void count_atomic(const void* address, std::size_t bytes, const void* next) {
  const OwnCode scope;
  observe(address, bytes, AccessKind::atomic, static_cast<const char*>(next) - 1);
}

void fence() {
  const OwnCode scope;
  if (AccessCounter* const counter = AccessCounter::current()) counter->fence();
}

long long device_nanoseconds() {
  const OwnCode scope;
  return static_cast<long long>(device_ms() * 1e6);
}

void advance_device(unsigned nanoseconds) {
  const OwnCode scope;
  simulate_device_ms(0, nanoseconds * 1e-6);
}

void trap(Where where) {
  const OwnCode scope;
  BlockRunner::current().fault("__trap()", where);
}

}  // namespace convoy::emulator
