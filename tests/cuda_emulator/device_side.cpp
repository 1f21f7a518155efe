// What kernels call, and how they get onto a stream: the functions behind include/cuda_runtime.h.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <utility>

#include "tests/cuda_emulator/block.h"
#include "tests/cuda_emulator/runtime.h"

namespace convoy::emulator {
namespace {

/// The limits that every GPU of the last ten years has.
bool is_valid(dim3 grid, dim3 block) {
  constexpr std::uint64_t kMostThreads = 1024;
  constexpr unsigned kMostLayers = 64;              // of a block, on z
  constexpr unsigned kMostColumns = 2'147'483'647;  // of blocks, on x
  constexpr unsigned kMostRows = 65'535;            // of blocks, on y and z
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  return threads >= 1 && block.x <= kMostThreads && block.y <= kMostThreads && block.z <= kMostLayers &&
         threads <= kMostThreads && grid.x >= 1 && grid.y >= 1 && grid.z >= 1 && grid.x <= kMostColumns &&
         grid.y <= kMostRows && grid.z <= kMostRows;
}

}  // namespace

cudaError_t submit(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread) {
  return on_stream(config.stream, [&](Driver& driver, EmulatedStream& stream) {
    if (!is_valid(config.gridDim, config.blockDim)) return cudaErrorInvalidConfiguration;
    if (config.dynamicSmemBytes > kMaxSharedBytes) return cudaErrorInvalidValue;
    driver.launch(stream,
                  {.grid = config.gridDim,
                   .block = config.blockDim,
                   .shared_bytes = config.dynamicSmemBytes,
                   .thread = std::move(thread)},
                  kernel);
    return cudaSuccess;
  });
}

void block_barrier(Where where) { BlockRunner::current().barrier(where); }

const std::uint64_t* warp_meet(unsigned mask, std::uint64_t bits, Where where) {
  return BlockRunner::current().meet(mask, bits, where);
}

Segment segment_of_this_lane(int width, Where where) {
  if (width < 1 || width > warpSize || (width & (width - 1)) != 0)
    BlockRunner::current().fault(
        fmt::format("a width of {}, which is no power of two up to {}", width, warpSize), where);
  const auto lanes = static_cast<unsigned>(width);
  const unsigned lane = BlockRunner::current().lane();
  const unsigned first = lane & ~(lanes - 1);
  return {.lane = lane, .first = first, .last = first + lanes - 1};
}

void report_foreign_lane(unsigned mask, unsigned source, Where where) {
  BlockRunner::current().fault(
      fmt::format("takes the value of lane {}, which mask {:#x} leaves out", source, mask), where);
}

void trap(Where where) { BlockRunner::current().fault("__trap()", where); }

}  // namespace convoy::emulator
