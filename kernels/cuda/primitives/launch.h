// launch(stream, grid, block, shared_bytes, kernel, args…), the only way to launch a kernel. It is a plain
// function instead of <<<…>>>, so that any host compiler can compile it and an emulator can replace the CUDA
// runtime.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "convoy/kernels/runtime/cuda/check.h"
#include "convoy/kernels/runtime/cuda/stream.h"

namespace convoy::kernels {

/// Returns the number of blocks that cover `items` items. It is 0 for no items; launching an empty grid is an
/// error, so callers must return early.
inline unsigned blocks_for(std::int64_t items, int items_per_block) {
  return static_cast<unsigned>((items + items_per_block - 1) / items_per_block);
}

/// When a kernel may start.
enum class LaunchStart : std::uint8_t {
  after_previous,  // when the stream's previous work has completed
  /// When all blocks of the previous kernel have called cuda::allow_next_kernel() or ended, so that the
  /// latency of the launch is hidden (CUDA Programming Guide, "Programmatic Dependent Launch"). Every thread
  /// must call cuda::wait_for_previous_kernel() before it accesses global memory. Only GPUs
  /// from sm_90 on start it early, and not after a wait for another stream.
  early,
};

/// What the GPU of a stream can launch, by the code that it runs: CudaStream::local() has one per stream.
class LaunchLimits {
 public:
  static constexpr int kPortableBlocks = 8;  // on all GPUs (CUDA Programming Guide, "Thread Block Clusters")

  /// Asks the GPU. Reads CONVOY_CLUSTERS; throws an error if it is not 0, 8 or 16.
  explicit LaunchLimits(CudaStream& stream);
  bool starts_early = false;     // LaunchStart::early has an effect
  int cluster_blocks = 0;        // the maximum: 16; 8 with CudaOptions::deterministic; 0 without clusters
  std::size_t shared_bytes = 0;  // that a block of a cluster may have

  /// Returns how many clusters of such a launch an idle GPU can run at the same time, 0 if it has none of this size, and
  /// permits the launch. Asks the driver once per set of arguments.
  int resident_clusters(const void* kernel, unsigned blocks, unsigned threads, std::size_t bytes);

 private:
  CudaStream& stream_;
  std::map<std::tuple<const void*, unsigned, std::size_t>, int> resident_;
};

/// The attributes of a launch.
struct LaunchOptions {
  LaunchStart start;
  unsigned cluster = 1;  // blocks of a cluster, which are adjacent along y

  LaunchOptions(LaunchStart when, unsigned blocks = 1) : start(when), cluster(blocks) {}
};

/// Returns the attribute of a launch in clusters of blocks that are adjacent along y.
inline cudaLaunchAttribute cluster_attribute(unsigned blocks) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = attribute.val.clusterDim.z = 1;
  attribute.val.clusterDim.y = blocks;
  return attribute;
}

/// Enqueues a kernel on `stream` and returns without waiting. Arguments convert to the kernel's parameter
/// types, as in a call. Throws DeviceError if the launch fails. Errors during the kernel's execution are
/// reported by the next synchronize().
template <class... Parameters>
void launch(const LaunchOptions& options, CudaStream& stream, dim3 grid, dim3 block, std::size_t shared_bytes,
            void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  stream.make_current();
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream.handle();
  cudaLaunchAttribute attributes[2]{};
  config.attrs = attributes;
  const bool follows_event = stream.take_event_wait();
  if (options.start == LaunchStart::early && !follows_event && stream.local<LaunchLimits>().starts_early) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (options.cluster > 1) attributes[config.numAttrs++] = cluster_attribute(options.cluster);
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears the error, which the exception reports
  const auto text = [](dim3 size) {
    return std::to_string(size.x) + "x" + std::to_string(size.y) + "x" + std::to_string(size.z);
  };
  throw DeviceError("a kernel could not start on cuda:" + std::to_string(stream.device()) + ": " +
                    cudaGetErrorString(status) + " (grid " + text(grid) + ", block " + text(block) + ", " +
                    std::to_string(shared_bytes) + " B of shared memory)");
}

/// Does the same for a kernel that starts after the previous work.
template <class... Parameters>
void launch(CudaStream& stream, dim3 grid, dim3 block, std::size_t shared_bytes,
            void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  launch(LaunchStart::after_previous, stream, grid, block, shared_bytes, kernel,
         std::forward<decltype(arguments)>(arguments)...);
}

namespace cuda {

inline constexpr int kSharedAlignment = 1024;  // the maximum that instructions want of a matrix

/// Returns the shared memory of the block as a struct T. It is uninitialized, and begins at a multiple of
/// kSharedAlignment bytes. The launch must pass shared_bytes of at least sizeof(T). No other code uses the
/// __shared__ qualifier, so that an emulator can check these accesses.
template <class T>
__device__ T& shared_memory() {
  alignas(kSharedAlignment) extern __shared__ unsigned char block_shared_bytes[];
  static_assert(alignof(T) <= kSharedAlignment);
  return *reinterpret_cast<T*>(block_shared_bytes);
}

/// Uninitialized device memory for the kernels of one call. The destructor returns it to the stream's
/// allocator, possibly before the kernels have run. That is safe: the next user of the memory enqueues on the
/// same stream, after them.
class Scratch {
 public:
  Scratch(CudaStream& stream, std::size_t bytes)
      : stream_(stream), bytes_(bytes), block_(stream.memory().allocate(bytes)) {}
  ~Scratch() { stream_.release(block_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T>
  T* as() const {
    return static_cast<T*>(block_);
  }

 private:
  CudaStream& stream_;
  std::size_t bytes_;
  void* block_;
};

}  // namespace cuda
}  // namespace convoy::kernels
