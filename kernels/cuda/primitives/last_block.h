// A reduction over several blocks in one launch: the block that stores its partial result last combines all.
#pragma once

#include <cuda_runtime.h>

namespace convoy::kernels::cuda {

/// Returns whether this block is the last one of `blocks` that take the ticket, to all its threads. The last
/// block sees all that the others stored before the call. All threads must call it. `is_last` is in shared
/// memory. *ticket must be 0 before the launch, and is 0 again after it (CudaStream::tickets()). It is unused
/// if there is one block.
///
/// Which block is the last one depends on the schedule, so the result must not: the last block has to combine
/// all partial results, its own included, in a fixed order.
__device__ inline bool is_last_block(bool& is_last, unsigned* ticket, int blocks) {
  __syncthreads();  // all threads of the block have stored
  if (blocks == 1) return true;
  if (threadIdx.x == 0) {
    // Release: what the threads stored is visible to the GPU before the ticket is taken. Acquire: what the
    // block loads from now on is not older than the ticket. Two calls of __threadfence() around a relaxed
    // operation order more than that, and take longer.
    const unsigned taken = __nv_atomic_fetch_add(ticket, 1U, __NV_ATOMIC_ACQ_REL, __NV_THREAD_SCOPE_DEVICE);
    is_last = taken == static_cast<unsigned>(blocks) - 1;
    if (is_last) *ticket = 0;  // for the next launch
  }
  __syncthreads();
  return is_last;
}

}  // namespace convoy::kernels::cuda
