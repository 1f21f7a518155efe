// Asynchronous copies from global to shared memory: cp.async of PTX (PTX ISA, "Data Movement and Conversion
// Instructions: Non-bulk copy"). The data does not pass through registers, and the thread goes on while it is
// on its way. The emulator copies when the thread waits, so that a read that comes too early finds the
// previous data.
#pragma once

#include <cuda_runtime.h>

namespace convoy::kernels::cuda {

/// Starts to copy 16 bytes, or to set them to zero if not `is_inside`; then `global` is not read. Both
/// addresses are multiples of 16. Until the copy has landed, no thread may access the bytes.
__device__ inline void copy_async(void* shared, const void* global, bool is_inside) {
#if defined(__CUDACC__)
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(shared))),
               "l"(global), "r"(is_inside ? 16 : 0)
               : "memory");
#else
  emulator::copy_async(shared, global, is_inside);
#endif
}

/// Ends a group of copies: those of the thread since the last call, possibly none.
__device__ inline void commit_copies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulator::commit_copies();
#endif
}

/// Blocks the thread until its copies have landed, except those of its last kPending groups. Other threads
/// see the data after the next barrier.
template <int kPending>
__device__ void wait_for_copies() {
#if defined(__CUDACC__)
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#else
  emulator::wait_for_copies(kPending);
#endif
}

}  // namespace convoy::kernels::cuda
