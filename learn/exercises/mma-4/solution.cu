// c = a b for matrices, row after row: a has m x k elements of bfloat16, b k x n, and c m x n floats.
#include <cuda_bf16.h>
#include <cuda_pipeline.h>

#include <cstdint>

// d += a b: all 32 lanes of a warp call it together.
__device__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Loads four matrices of 8 x 8 elements. Lane l passes the address of row l % 8 of matrix l / 8.
__device__ void load(uint32_t (&to)[4], const __nv_bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
}

__device__ void load_transposed(uint32_t (&to)[4], const __nv_bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
}

// The place of a chunk of 8 elements in its row.
__device__ int place_a(int row, int chunk) { return 8 * (chunk ^ row / 4 % 2); }
__device__ int place_b(int row, int chunk) { return 8 * (chunk ^ row % 8); }

__global__ void gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k) {
  __shared__ __align__(16) __nv_bfloat16 slab_a[2][64][16], slab_b[2][16][64];
  const int thread = threadIdx.x, lane = thread % 32;
  const int row = thread / 64 * 32, column = thread / 32 % 2 * 32;  // of the warp's 32 x 32 elements
  float d[2][4][4] = {};
  // Begins to copy the elements [i, i + 16) along k to one of the two slabs of each matrix.
  const auto copy = [&](int slab, int i) {
    const int row_a = thread / 2, chunk_a = thread % 2, row_b = thread / 8, chunk_b = thread % 8;
    __pipeline_memcpy_async(&slab_a[slab][row_a][place_a(row_a, chunk_a)],
                            &a[(blockIdx.y * 64 + row_a) * k + i + 8 * chunk_a], 16);
    __pipeline_memcpy_async(&slab_b[slab][row_b][place_b(row_b, chunk_b)],
                            &b[(i + row_b) * n + blockIdx.x * 64 + 8 * chunk_b], 16);
    __pipeline_commit();
  };
  copy(0, 0);
  for (int i = 0; i < k; i += 16) {
    const int slab = i / 16 % 2;
    __pipeline_wait_prior(0);
    __syncthreads();
    if (i + 16 < k) copy(1 - slab, i + 16);
    uint32_t left[2][4], right[2][4];
    for (int r = 0; r < 2; ++r) {
      const int line = row + r * 16 + lane % 16, chunk = lane / 16;
      load(left[r], &slab_a[slab][line][place_a(line, chunk)]);
    }
    for (int s = 0; s < 2; ++s) {
      const int line = lane % 16, chunk = (column + s * 16) / 8 + lane / 16;
      load_transposed(right[s], &slab_b[slab][line][place_b(line, chunk)]);
    }
    for (int r = 0; r < 2; ++r)
      for (int s = 0; s < 4; ++s)
        multiply(d[r][s], left[r], right[s / 2][s % 2 * 2], right[s / 2][s % 2 * 2 + 1]);
  }
  for (int r = 0; r < 2; ++r)
    for (int s = 0; s < 4; ++s)
      for (int half = 0; half < 2; ++half) {
        const int y = blockIdx.y * 64 + row + r * 16 + half * 8 + lane / 4;
        const int x = blockIdx.x * 64 + column + s * 8 + lane % 4 * 2;
        *reinterpret_cast<float2*>(&c[y * n + x]) = make_float2(d[r][s][2 * half], d[r][s][2 * half + 1]);
      }
}
