// Instructions of Hopper for copies and tensor cores that run while threads go on (PTX ISA): cp.async, mbarrier,
// named barriers, setmaxnreg and wgmma. Code that calls wgmma is compiled for sm_90a alone.
//
// A *mbarrier* is 8 bytes of shared memory. Its phases end one after another, each with as many arrivals as it
// was initialized with. A thread waits for the end of a phase by its parity: 0 for the first one, then 1, 0, ….
//
// wgmma is a multiplication by a *warpgroup*, which is 128 adjacent threads. They call these functions together:
//
//   fence_async_proxy();                        // after copies have landed that the multiplications read
//   warpgroup_fence();                          // after accesses to registers of d
//   warpgroup_multiply_add<T, false>(d, a, b);  // starts; further ones with the same d need no fence
//   warpgroup_commit();                         // ends a group of multiplications
//   warpgroup_wait<0>();                        // until then, d and the shared memory must not be accessed
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "convoy/kernels/base/dtype.h"

#if defined(__CUDACC__)
#define CONVOY_PTX(emulated, instruction, ...) asm volatile(instruction ::__VA_ARGS__ : "memory")
#else
#define CONVOY_PTX(emulated, instruction, ...) emulated
#endif

namespace convoy::kernels::cuda {

/// Returns the address of shared memory as PTX has it.
__device__ inline std::uint32_t shared_address(const void* shared) {
#if defined(__CUDACC__)
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
#else
  return emulator::shared_address(shared);
#endif
}

/// Starts to copy 16 bytes to shared memory, or to set them to zero if not `is_inside`; then `global` is not
/// read. Both addresses are multiples of 16. Until the copy has landed, no thread may access the bytes.
__device__ inline void copy_async(void* shared, const void* global, bool is_inside) {
  CONVOY_PTX(emulator::copy_async(shared, global, is_inside), "cp.async.cg.shared.global [%0], [%1], 16, %2;",
             "r"(shared_address(shared)), "l"(global), "r"(is_inside ? 16 : 0));
}
/// Ends a group of copies: those of the thread since the last call, possibly none.
__device__ inline void commit_copies() { CONVOY_PTX(emulator::commit_copies(), "cp.async.commit_group;"); }
/// Blocks the thread until its copies have landed, except those of its last kPending groups. Other threads see
/// the data after the next barrier.
template <int kPending>
__device__ void wait_for_copies() {
  CONVOY_PTX(emulator::wait_for_copies(kPending), "cp.async.wait_group %0;", "n"(kPending));
}

/// An mbarrier in shared memory.
struct Mbarrier {
  std::uint64_t bits;

  /// Prepares for phases of `count` arrivals. Other threads use it after the next __syncthreads().
  __device__ void initialize(unsigned count) {
    CONVOY_PTX(emulator::initialize_mbarrier(this, count), "mbarrier.init.shared::cta.b64 [%0], %1;",
               "r"(shared_address(this)), "r"(count));
  }
  /// Arrives, after the thread's accesses to memory so far.
  __device__ void arrive() {
    CONVOY_PTX(emulator::arrive_at_mbarrier(this),
               "{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}",
               "r"(shared_address(this)));
  }
  /// Arrives when all copies that the thread has started have landed. Does not wait.
  __device__ void arrive_after_copies() {
    CONVOY_PTX(emulator::arrive_after_copies(this), "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];",
               "r"(shared_address(this)));
  }
  /// Blocks the thread until the current phase has ended if that has this parity; otherwise the previous one
  /// has.
  __device__ void wait(unsigned parity) {
    CONVOY_PTX(emulator::wait_for_mbarrier(this, parity),
               "{\n.reg .pred is_over;\nagain:\n"
               "mbarrier.try_wait.parity.shared::cta.b64 is_over, [%0], %1;\n@!is_over bra again;\n}",
               "r"(shared_address(this)), "r"(parity));
  }
};

/// Blocks the thread until `threads` threads, a multiple of 32, have called this or the function below for
/// barrier `id`, 1 to 15. Orders their accesses to shared memory.
__device__ inline void named_barrier_sync(unsigned id, unsigned threads) {
  CONVOY_PTX(emulator::named_barrier_sync(id, threads), "barrier.sync %0, %1;", "r"(id), "r"(threads));
}
/// Arrives there without waiting.
__device__ inline void named_barrier_arrive(unsigned id, unsigned threads) {
  CONVOY_PTX(emulator::named_barrier_arrive(id, threads), "barrier.arrive %0, %1;", "r"(id), "r"(threads));
}

/// Gives registers of the warpgroup back, so that each thread keeps kCount.
template <int kCount>
__device__ void release_registers() {
  CONVOY_PTX(emulator::set_max_registers(kCount, false), "setmaxnreg.dec.sync.aligned.u32 %0;", "n"(kCount));
}
/// Blocks the warpgroup until each thread has kCount registers, which others have given back.
template <int kCount>
__device__ void acquire_registers() {
  CONVOY_PTX(emulator::set_max_registers(kCount, true), "setmaxnreg.inc.sync.aligned.u32 %0;", "n"(kCount));
}

/// Makes what the thread has written to shared memory, and seen at barriers, visible to wgmma.
__device__ inline void fence_async_proxy() {
  CONVOY_PTX(emulator::fence_async_proxy(), "fence.proxy.async.shared::cta;");
}
__device__ inline void warpgroup_fence() {
  CONVOY_PTX(emulator::warpgroup_fence(), "wgmma.fence.sync.aligned;");
}
__device__ inline void warpgroup_commit() {
  CONVOY_PTX(emulator::warpgroup_commit(), "wgmma.commit_group.sync.aligned;");
}
/// Blocks the thread until its multiplications have ended, except those of its last kPending groups.
template <int kPending>
__device__ void warpgroup_wait() {
  CONVOY_PTX(emulator::warpgroup_wait(kPending), "wgmma.wait_group.sync.aligned %0;", "n"(kPending));
}

/// Returns the descriptor of a matrix without swizzle. It begins at any multiple of 16 bytes and consists of
/// blocks of 8 x 8 elements, each with 8 rows of 16 bytes one after another. `leading` bytes are between blocks
/// along k, and `stride` bytes between those along the rows of a or the columns of b.
__device__ inline std::uint64_t matrix_descriptor(const void* matrix, unsigned leading, unsigned stride) {
  return (shared_address(matrix) & 0x3ffff) >> 4 | std::uint64_t{leading >> 4} << 16 |
         std::uint64_t{stride >> 4} << 32;
}

#define CONVOY_FLOATS(i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define CONVOY_FLOATS_9                                                                     \
  CONVOY_FLOATS(0), CONVOY_FLOATS(1), CONVOY_FLOATS(2), CONVOY_FLOATS(3), CONVOY_FLOATS(4), \
      CONVOY_FLOATS(5), CONVOY_FLOATS(6), CONVOY_FLOATS(7), CONVOY_FLOATS(8)
#define CONVOY_FLOATS_17                                                                      \
  CONVOY_FLOATS_9, CONVOY_FLOATS(9), CONVOY_FLOATS(10), CONVOY_FLOATS(11), CONVOY_FLOATS(12), \
      CONVOY_FLOATS(13), CONVOY_FLOATS(14), CONVOY_FLOATS(15), CONVOY_FLOATS(16)
#define CONVOY_NAMES_36                                                                                            \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
  "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35"
#define CONVOY_NAMES_68                                                                                              \
  CONVOY_NAMES_36                                                                                                    \
  ", %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, " \
  "%58, %59, %60, %61, %62, %63, %64, %65, %66, %67"
#define CONVOY_MULTIPLY(shape, type, names, floats, a_name, b_name, transposed_name)                  \
  asm volatile(                                                                                       \
      "{\n.reg .pred adds;\nsetp.eq.u32 adds, 0, 0;\n"                                                \
      "wgmma.mma_async.sync.aligned." shape ".f32." type "." type " {" names "}, " a_name ", " b_name \
      ", adds, 1, 1, " transposed_name ", 0;\n}"                                                      \
      : floats                                                                                        \
      : "l"(a), "l"(b), "n"(kTransposed ? 1 : 0))

/// Starts d += a b for a [64, 16] and b [16, 8 kCount] of T, float16 or bfloat16, for a kCount of 9 or 17. Both
/// are in shared memory: matrix_descriptor(), the same in all threads. Rows of 16 bytes are 8 elements along k, or
/// with kTransposed 8 rows of a. Warp w of the group has rows 16 w to 16 w + 15 of d; lane l, with g = l / 4 and
/// t = l % 4, has in d[j][e] row g + e / 2 * 8 and column 8 j + 2 t + e % 2. Products are exact; their sum is f32,
/// in an order that NVIDIA does not document.
template <class T, bool kTransposed, int kCount>
__device__ void warpgroup_multiply_add(float (&d)[kCount][4], std::uint64_t a, std::uint64_t b) {
  static_assert((kCount == 9 || kCount == 17) && (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>));
#if defined(__CUDACC__)
  if constexpr (kCount == 9 && std::is_same_v<T, float16>) {
    CONVOY_MULTIPLY("m64n72k16", "f16", CONVOY_NAMES_36, CONVOY_FLOATS_9, "%36", "%37", "%38");
  } else if constexpr (kCount == 9) {
    CONVOY_MULTIPLY("m64n72k16", "bf16", CONVOY_NAMES_36, CONVOY_FLOATS_9, "%36", "%37", "%38");
  } else if constexpr (std::is_same_v<T, float16>) {
    CONVOY_MULTIPLY("m64n136k16", "f16", CONVOY_NAMES_68, CONVOY_FLOATS_17, "%68", "%69", "%70");
  } else {
    CONVOY_MULTIPLY("m64n136k16", "bf16", CONVOY_NAMES_68, CONVOY_FLOATS_17, "%68", "%69", "%70");
  }
#else
  emulator::warpgroup_multiply_add(
      {.d = &d[0][0],
       .columns = 8 * kCount,
       .b = b,
       .widen = [](std::uint16_t bits) { return static_cast<float>(std::bit_cast<T>(bits)); },
       .shared_a = a,
       .is_a_transposed = kTransposed});
#endif
}

}  // namespace convoy::kernels::cuda
