// c = a b for matrices, row after row: a has m x k elements of bfloat16, b k x n, and c m x n floats.
#include <cuda_bf16.h>

#include <cstdint>

// d += a b: all 32 lanes of a warp call it together.
__device__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two elements in one register, the first in its lower half.
__device__ uint32_t pair(__nv_bfloat16 first, __nv_bfloat16 second) {
  const __nv_bfloat162 both(first, second);
  return *reinterpret_cast<const uint32_t*>(&both);
}

__global__ void gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  const int row = blockIdx.y * 16 + g, column = blockIdx.x * 8;
  float d[4] = {};
  for (int i = 2 * t; i < k; i += 16) {
    const __nv_bfloat16 *upper = &a[row * k + i], *lower = &a[(row + 8) * k + i],
                        *right = &b[i * n + column + g];
    const uint32_t left[4] = {pair(upper[0], upper[1]), pair(lower[0], lower[1]), pair(upper[8], upper[9]),
                              pair(lower[8], lower[9])};
    multiply(d, left, pair(right[0], right[n]), pair(right[8 * n], right[9 * n]));
  }
  for (int e = 0; e < 4; ++e) c[(row + e / 2 * 8) * n + column + 2 * t + e % 2] = d[e];
}
