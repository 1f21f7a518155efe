// c = a b for matrices, row after row: a has m x k elements of bfloat16, b k x n, and c m x n floats.
// m and k are multiples of 16, n is one of 8.
//
// A block is one warp. It computes 16 rows and 8 columns of c by multiply(), for 16 values of k at a time. With g = lane / 4 and
// t = lane % 4, a lane has of these matrices, in this order
//   a: row g, k = 2t and 2t + 1;  row g + 8, k = 2t and 2t + 1;  row g, k = 2t + 8 and 2t + 9;  row g + 8, k = 2t + 8 and 2t + 9
//   b: column g, k = 2t and 2t + 1;  column g, k = 2t + 8 and 2t + 9
//   d: row g, column 2t;  row g, column 2t + 1;  row g + 8, column 2t;  row g + 8, column 2t + 1
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
  float d[4] = {};
  // TODO: for 16 values of k at a time, load the lane's elements and multiply; then store d
}
