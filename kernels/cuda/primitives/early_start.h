// The device side of LaunchStart::early (launch.h): griddepcontrol of PTX (PTX ISA, "Parallel Synchronization
// and Communication Instructions"). A kernel may start while the previous one of its stream still runs.
#pragma once

#include <cuda_runtime.h>

namespace convoy::kernels::cuda {

/// Blocks the thread until the kernels that the stream has before this one have completed and their results
/// are visible.
__device__ inline void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#elif !defined(__CUDACC__)
  emulator::wait_for_previous_kernel();
#endif
}

/// Allows the next kernel of the stream to start, if it is an early one, once every block has called this.
__device__ inline void allow_next_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace convoy::kernels::cuda
