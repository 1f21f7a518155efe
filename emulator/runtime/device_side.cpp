// The functions behind include/cuda_runtime.h: kernel launches, and the operations that kernels call.
#include <cuda_runtime.h>

#include <algorithm>
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

/// The attributes of a launch.
struct Attributes {
  dim3 cluster{};
  bool starts_early = false;
};

Attributes attributes_of(const cudaLaunchConfig_t& config) {
  Attributes result;
  for (const cudaLaunchAttribute* attribute = config.attrs; attribute < config.attrs + config.numAttrs;
       ++attribute) {
    if (attribute->id == cudaLaunchAttributeProgrammaticStreamSerialization)
      result.starts_early = attribute->val.programmaticStreamSerializationAllowed != 0;
    if (attribute->id == cudaLaunchAttributeClusterDimension)
      result.cluster = {attribute->val.clusterDim.x, attribute->val.clusterDim.y,
                        attribute->val.clusterDim.z};
  }
  return result;
}

/// Returns the error of a launch's sizes.
cudaError_t check(const Driver& driver, const cudaLaunchConfig_t& config, dim3 cluster,
                  const KernelSettings& kernel) {
  if (!is_valid(config.gridDim, config.blockDim)) return cudaErrorInvalidConfiguration;
  if (config.dynamicSmemBytes > kernel.dynamic_bytes) return cudaErrorInvalidValue;
  const std::uint64_t blocks = std::uint64_t{cluster.x} * cluster.y * cluster.z;
  if (blocks == 1) return cudaSuccess;
  if (driver.settings.capability < kOldestWithClusters) return cudaErrorNotSupported;
  const bool is_divided = blocks > 0 && config.gridDim.x % cluster.x == 0 &&
                          config.gridDim.y % cluster.y == 0 && config.gridDim.z % cluster.z == 0;
  const unsigned max_blocks =
      kernel.has_large_clusters ? BlockRunner::kMaxClusterBlocks : kMaxPortableCluster;
  return is_divided && blocks <= max_blocks ? cudaSuccess : cudaErrorInvalidClusterSize;
}

}  // namespace

cudaError_t submit(const cudaLaunchConfig_t& config, const void* kernel, KernelCall call, const char* name) {
  return on_stream(config.stream, [&](Driver& driver, EmulatedStream& stream) {
    const KernelSettings settings = driver.kernel_settings(kernel, name);
    const Attributes attributes = attributes_of(config);
    if (const cudaError_t status = check(driver, config, attributes.cluster, settings); status != cudaSuccess)
      return status;
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
                   .starts_early = attributes.starts_early,
                   .name = name,
                   .cluster = attributes.cluster,
                   .max_shared_bytes = settings.dynamic_bytes > kDefaultSharedBytes
                                           ? shared_limit(driver.settings.capability)
                                           : kDefaultSharedBytes},
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

void cluster_arrive(Where where) {
  const OwnCode scope;
  BlockRunner::current().cluster_arrive(where);
}

void cluster_wait(Where where) {
  const OwnCode scope;
  BlockRunner::current().cluster_wait(where);
}

void* map_shared(void* shared, unsigned rank, Where where) {
  const OwnCode scope;
  return BlockRunner::current().map_shared(shared, rank, where);
}

unsigned rank_of_shared(const void* shared, Where where) {
  const OwnCode scope;
  return BlockRunner::current().rank_of_shared(shared, where);
}

dim3 cluster_dim() { return BlockRunner::current().cluster_dim(); }

uint3 index_in_cluster() {
  const dim3 size = cluster_dim();
  return {blockIdx.x % size.x, blockIdx.y % size.y, blockIdx.z % size.z};
}

unsigned rank_in_cluster() { return running_rank; }

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

using namespace convoy::emulator;  // NOLINT: the names below are those of the C API

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* kernel,
                                           const cudaLaunchConfig_t* config) {
  return on_gpu([&](Driver& driver, int) {
    const dim3 cluster = attributes_of(*config).cluster;
    const cudaError_t status = check(driver, *config, cluster, driver.kernel_settings(kernel, ""));
    if (status == cudaErrorNotSupported) return status;
    *clusters = 0;
    if (status != cudaSuccess) return cudaSuccess;
    // Those of an H100, which has 8 groups of 16 multiprocessors or a few more. The blocks of a cluster are in one group.
    constexpr std::size_t kGroups = 8, kOfGroup = 16, kMaxThreads = 2048, kMaxBlocks = 32, kReserved = 1024;
    const std::size_t threads = std::size_t{config->blockDim.x} * config->blockDim.y * config->blockDim.z;
    const std::size_t blocks = std::min(
        {kMaxBlocks, kMaxThreads / threads,
         (shared_limit(driver.settings.capability) + kReserved) / (config->dynamicSmemBytes + kReserved)});
    const std::size_t in_cluster = std::size_t{cluster.x} * cluster.y * cluster.z;
    *clusters = static_cast<int>(kGroups * (kOfGroup * blocks / in_cluster));
    return cudaSuccess;
  });
}
