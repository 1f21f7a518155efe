// Loads of matrices for the tensor cores: ldmatrix of PTX (PTX ISA, "Warp-level Matrix Instructions"). The lanes
// of a warp hold a matrix together: each has some elements, its *fragment*. With g = lane / 4 and t = lane % 4, a
// lane has, of a [16, 16] (rows, k)
//
//   a[0]: row g,     k = 2t, 2t + 1        a[2]: row g,     k = 2t + 8, 2t + 9
//   a[1]: row g + 8, k = 2t, 2t + 1        a[3]: row g + 8, k = 2t + 8, 2t + 9
//
// A register has two elements of 16 bits, adjacent in k, the first in the lower half.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace convoy::kernels::cuda {

/// Loads four matrices of 8 x 8 elements of 16 bits from shared memory; all lanes of a warp call it together. Lane
/// l passes the address of row l % 8 of matrix l / 8: 16 bytes, at a multiple of 16. Sets to[m] to the elements 2t
/// and 2t + 1 of row g of matrix m. Each matrix is one access of 128 bytes, without bank conflicts if its rows are
/// in different groups of four banks.
__device__ inline void load_matrices(const void* row, std::uint32_t (&to)[4]) {
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
#else
  emulator::load_matrices(row, to);
#endif
}

/// The same with the elements of each matrix exchanged: sets to[m] to the elements of rows 2t and 2t + 1 and column g.
__device__ inline void load_transposed_matrices(const void* row, std::uint32_t (&to)[4]) {
#if defined(__CUDACC__)
  const auto address = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
#else
  emulator::load_transposed_matrices(to[0], to[1], to[2], to[3], emulator::shared_address(row));
#endif
}

}  // namespace convoy::kernels::cuda
