// Matrix multiplication by the tensor cores of Hopper: wgmma of PTX (PTX ISA, "Asynchronous Warpgroup Level
// Matrix Multiply-Accumulate Instructions") with a in registers, and with swizzles; hopper.h has the rest. Four warps,
// a *warpgroup*, multiply a [64, 16] by b [16, 64]. b is in shared memory, from where all four warps read it once.
// Warp w of the group has rows 16 w to 16 w + 15 of a and d, as fragments of tensor_core.h; d is 8 of those, for 8
// columns each.
//
// All threads of a warpgroup, which are 128 adjacent ones, call these functions together. Only GPUs of compute
// capability 9.0 have the instructions, and only code for sm_90a may use them. In code for other GPUs the
// functions end the kernel with an error.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "convoy/kernels/base/dtype.h"
#include "tests/cuda_emulator/tests/hopper.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CONVOY_WGMMA(...) asm volatile(__VA_ARGS__)
#elif defined(__CUDACC__)
#define CONVOY_WGMMA(...) __trap()
#endif

namespace convoy::kernels::cuda {

/// How 16-byte chunks are exchanged within 8 rows of a matrix in shared memory, as in a descriptor. With rows
/// of 32 bytes, chunk c of row r is at place c xor (r / 4 % 2); with rows of 128 bytes, at place c xor (r %
/// 8).
enum class Swizzle : std::uint64_t { rows_of_128_bytes = 1, rows_of_32_bytes = 3 };

/// Returns the descriptor of b [16, 64] for warpgroup_multiply_add(). Without kTransposed, b is stored as 64
/// rows of 16 elements (k), with rows_of_32_bytes, and begins at a multiple of 256 bytes. With kTransposed it
/// is stored as 16 rows of 64 elements, with rows_of_128_bytes, and begins at a multiple of 1,024 bytes.
template <bool kTransposed>
__device__ std::uint64_t matrix_descriptor(const void* b) {
  constexpr std::uint64_t kRowBytes = kTransposed ? 128 : 32;
  constexpr Swizzle kSwizzle = kTransposed ? Swizzle::rows_of_128_bytes : Swizzle::rows_of_32_bytes;
#if defined(__CUDACC__)
  const std::uint64_t address = __cvta_generic_to_shared(b);
#else
  const std::uint64_t address = emulator::shared_address(b);
#endif
  // Offsets are in units of 16 bytes. The leading one, to further columns of b, is not used.
  constexpr std::uint64_t kLeading = 1, kStride = 8 * kRowBytes / 16;
  return (address & 0x3ffff) >> 4 | kLeading << 16 | kStride << 32 |
         static_cast<std::uint64_t>(kSwizzle) << 62;
}

/// Prevents the compiler from moving computations with d across this place. It does not know that a
/// multiplication goes on after its instruction.
template <int kCount>
__device__ void pin_registers([[maybe_unused]] float (&d)[kCount][4]) {
#if defined(__CUDACC__)
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    asm volatile("" : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])::"memory");
#endif
}

/// Starts d += a b for a [64, 16] and b [16, 64] of T: float16 or bfloat16. `b` is
/// matrix_descriptor<kTransposed>() and the same in all threads. Products are exact; their sum is f32, in an
/// order that NVIDIA does not document.
template <class T, bool kTransposed>
__device__ void warpgroup_multiply_add(float (&d)[8][4], const std::uint32_t (&a)[4], std::uint64_t b) {
  static_assert(std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>);
#if defined(__CUDACC__)
// clang-format off
#define CONVOY_MULTIPLY_ADD(type)                                                                    \
  CONVOY_WGMMA(                                                                                      \
      "{\n.reg .pred adds;\nsetp.eq.u32 adds, 0, 0;\n"                                               \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type " "                                \
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                      \
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "            \
      "{%32, %33, %34, %35}, %36, adds, 1, 1, %37;\n}"                                               \
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]),    \
        "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]),    \
        "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]),    \
        "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),    \
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]),    \
        "+f"(d[7][2]), "+f"(d[7][3])                                                                 \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kTransposed ? 1 : 0))
  // clang-format on
  if constexpr (std::is_same_v<T, float16>) {
    CONVOY_MULTIPLY_ADD("f16");
  } else {
    CONVOY_MULTIPLY_ADD("bf16");
  }
#undef CONVOY_MULTIPLY_ADD
#else
  emulator::warpgroup_multiply_add({.d = &d[0][0],
                                    .columns = 64,
                                    .a = a,
                                    .b = b,
                                    .is_transposed = kTransposed,
                                    .widen = [](std::uint16_t bits) {
                                      T element;
                                      element.bits = bits;
                                      return static_cast<float>(element);
                                    }});
#endif
}

}  // namespace convoy::kernels::cuda

#undef CONVOY_WGMMA
