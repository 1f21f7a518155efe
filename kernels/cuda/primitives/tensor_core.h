// Matrix multiplication by the tensor cores: ldmatrix and mma.sync of PTX (PTX ISA, "Warp-level Matrix
// Instructions"). The lanes of a warp hold a matrix together: each has some elements, its *fragment*. With
// g = lane / 4 and t = lane % 4, a lane has, of
//
//   a [16, 16] (rows, k)     a[0]: row g,     k = 2t, 2t + 1        a[2]: row g,     k = 2t + 8, 2t + 9
//                            a[1]: row g + 8, k = 2t, 2t + 1        a[3]: row g + 8, k = 2t + 8, 2t + 9
//   b [16, 8] (k, columns)   b[0]: column g,  k = 2t, 2t + 1        b[1]: column g,  k = 2t + 8, 2t + 9
//   d [16, 8]                d[0], d[1]: row g, columns 2t, 2t + 1  d[2], d[3]: row g + 8, the same columns
//
// A register of a and b has two elements of 16 bits, adjacent in k, the first in the lower half. d is f32.
// All lanes of a warp call these functions together.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "convoy/kernels/base/dtype.h"

namespace convoy::kernels::cuda {

/// Loads four matrices of 8 x 8 elements of 16 bits from shared memory. Lane l passes the address of row
/// l % 8 of matrix l / 8: 16 bytes, at a multiple of 16. Sets to[m] to the elements 2t and 2t + 1 of row g of
/// matrix m, or with kTranspose to the elements g of the rows 2t and 2t + 1. Each matrix is one access of 128
/// bytes, without bank conflicts if its rows are in different groups of four banks.
template <bool kTranspose = false>
__device__ void load_matrices(const void* row, std::uint32_t (&to)[4]) {
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  if constexpr (kTranspose) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  }
#else
  emulator::load_matrices(row, kTranspose, to);
#endif
}

/// Computes d += a b for fragments of T: float16 or bfloat16. Products are exact. Their sum is f32, in an
/// order that NVIDIA does not document.
template <class T>
__device__ void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  static_assert(std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>);
#if defined(__CUDACC__)
  if constexpr (std::is_same_v<T, float16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#else
  emulator::multiply_add(d, {a[0], a[1], a[2], a[3], b0, b1}, [](std::uint16_t bits) {
    T element;
    element.bits = bits;
    return static_cast<float>(element);
  });
#endif
}

}  // namespace convoy::kernels::cuda
