// The one way to start a kernel: launch(stream, grid, block, shared_bytes, kernel, args…). A plain function
// and no <<<…>>>, so that any host compiler can read it and an emulator can stand in for the runtime beneath
// it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "kernels/runtime/cuda_check.h"
#include "kernels/runtime/cuda_stream.h"

namespace convoy {

/// Blocks that cover n items; a launch of none is an error, so callers return early where n is 0.
inline unsigned blocks_for(std::int64_t items, int items_per_block) {
  return static_cast<unsigned>((items + items_per_block - 1) / items_per_block);
}

/// Arguments convert to the kernel's parameter types, as in a call. Reports a launch that could not start;
/// what goes wrong while the kernel runs, the next synchronize() reports.
template <class... Parameters>
void launch(CudaStream& stream, dim3 grid, dim3 block, std::size_t shared_bytes,
            void (*kernel)(Parameters...), std::type_identity_t<Parameters>... arguments) {
  stream.make_current();
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream.handle();
  const cudaError_t status = cudaLaunchKernelEx(&config, kernel, arguments...);
  if (status == cudaSuccess) return;
  const auto text = [](dim3 size) {
    return std::to_string(size.x) + "x" + std::to_string(size.y) + "x" + std::to_string(size.z);
  };
  throw DeviceError("a kernel could not start on cuda:" + std::to_string(stream.device()) + ": " +
                    cudaGetErrorString(status) + " (grid " + text(grid) + ", block " + text(block) + ", " +
                    std::to_string(shared_bytes) + " B of shared memory)");
}

namespace cuda {

/// What the threads of a block share: a struct T, whose size the launch has asked for as shared_bytes. Not
/// initialised. The one place with the __shared__ qualifier, so that an emulator can guard those bytes.
template <class T>
__device__ T& shared_memory() {
  extern __shared__ unsigned char block_shared_bytes[];
  static_assert(alignof(T) <= 16);
  return *reinterpret_cast<T*>(block_shared_bytes);
}

/// Device memory for the kernels of one call, uninitialised. It goes back to the stream's allocator when the
/// call returns, before the kernels have run: whoever gets it next works on the same stream, after them.
class Scratch {
 public:
  Scratch(CudaStream& stream, std::size_t bytes)
      : memory_(stream.memory()), bytes_(bytes), block_(memory_.allocate(bytes)) {}
  ~Scratch() { memory_.release(block_, bytes_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  template <class T>
  T* as() const {
    return static_cast<T*>(block_);
  }

 private:
  CachingAllocator& memory_;
  std::size_t bytes_;
  void* block_;
};

}  // namespace cuda
}  // namespace convoy
