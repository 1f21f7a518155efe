// c = a b on tensor cores: a and b in bfloat16, c in f32.
#include <cuda_bf16.h>

#include <cstdint>
#include <cstdio>
#include <vector>

const int m = 128, n = 128, k = 64;

// d += a b for matrices of 16 x 16 and 16 x 8 elements that the 32 lanes of a warp hold together.
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

// The same, transposed: a lane gets neighbors of a column.
__device__ void load_transposed(uint32_t (&to)[4], const __nv_bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
               : "memory");
}

__device__ uint32_t pair(__nv_bfloat16 first, __nv_bfloat16 second) {
  const __nv_bfloat162 both(first, second);
  return *reinterpret_cast<const uint32_t*>(&both);
}

// One warp computes 16 x 8 elements, and loads its fragments element by element.
__global__ void fragments(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  a += (blockIdx.y * 16 + g) * k + 2 * t;
  b += 2 * t * n + blockIdx.x * 8 + g;
  c += (blockIdx.y * 16 + g) * n + blockIdx.x * 8 + 2 * t;
  float d[4] = {};
  for (int i = 0; i < k; i += 16) {
    const uint32_t left[4] = {pair(a[i], a[i + 1]), pair(a[8 * k + i], a[8 * k + i + 1]),
                              pair(a[i + 8], a[i + 9]), pair(a[8 * k + i + 8], a[8 * k + i + 9])};
    multiply(d, left, pair(b[i * n], b[(i + 1) * n]), pair(b[(i + 8) * n], b[(i + 9) * n]));
  }
  *reinterpret_cast<float2*>(c) = make_float2(d[0], d[1]);
  *reinterpret_cast<float2*>(c + 8 * n) = make_float2(d[2], d[3]);
}

// Four warps compute 64 x 64 elements from slabs in shared memory, of rows with `padding` elements more.
template <int padding>
__device__ void multiply_slabs(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  __shared__ __align__(16) __nv_bfloat16 slab_a[64][16 + padding], slab_b[16][64 + padding];
  const int thread = threadIdx.x, lane = thread % 32;
  const int row = thread / 64 * 32, column = thread / 32 % 2 * 32;  // of the warp's 32 x 32 elements
  a += blockIdx.y * 64 * k;
  b += blockIdx.x * 64;
  c += (blockIdx.y * 64 + row + lane / 4) * n + blockIdx.x * 64 + column + lane % 4 * 2;
  float d[2][4][4] = {};
  for (int i = 0; i < k; i += 16) {
    *reinterpret_cast<uint4*>(&slab_a[thread / 2][thread % 2 * 8]) =
        *reinterpret_cast<const uint4*>(&a[thread / 2 * k + i + thread % 2 * 8]);
    *reinterpret_cast<uint4*>(&slab_b[thread / 8][thread % 8 * 8]) =
        *reinterpret_cast<const uint4*>(&b[(i + thread / 8) * n + thread % 8 * 8]);
    __syncthreads();
    uint32_t left[2][4], right[2][4];
    for (int r = 0; r < 2; ++r) load(left[r], &slab_a[row + r * 16 + lane % 16][lane / 16 * 8]);
    for (int s = 0; s < 2; ++s)
      load_transposed(right[s], &slab_b[lane % 16][column + s * 16 + lane / 16 * 8]);
    for (int r = 0; r < 2; ++r)
      for (int s = 0; s < 4; ++s)
        multiply(d[r][s], left[r], right[s / 2][s % 2 * 2], right[s / 2][s % 2 * 2 + 1]);
    __syncthreads();
  }
  for (int r = 0; r < 2; ++r)
    for (int s = 0; s < 4; ++s)
      for (int half = 0; half < 2; ++half)
        *reinterpret_cast<float2*>(&c[(r * 16 + half * 8) * n + s * 8]) =
            make_float2(d[r][s][2 * half], d[r][s][2 * half + 1]);
}

__global__ void slabs(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  multiply_slabs<0>(a, b, c);
}
__global__ void padded(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c) {
  multiply_slabs<8>(a, b, c);
}

int main() {
  std::vector<__nv_bfloat16> a(m * k), b(k * n);
  std::vector<float> c(m * n);
  for (int i = 0; i < m * k; ++i) a[i] = __float2bfloat16(float(i % 7));
  for (int i = 0; i < k * n; ++i) b[i] = __float2bfloat16(float(i % 5));
  __nv_bfloat16 *d_a, *d_b;
  float* d_c;
  cudaMalloc(&d_a, a.size() * sizeof(__nv_bfloat16));
  cudaMalloc(&d_b, b.size() * sizeof(__nv_bfloat16));
  cudaMalloc(&d_c, c.size() * sizeof(float));
  cudaMemcpy(d_a, a.data(), a.size() * sizeof(__nv_bfloat16), cudaMemcpyHostToDevice);
  cudaMemcpy(d_b, b.data(), b.size() * sizeof(__nv_bfloat16), cudaMemcpyHostToDevice);
  const auto show = [&](const char* name) {
    cudaMemcpy(c.data(), d_c, c.size() * sizeof(float), cudaMemcpyDeviceToHost);
    cudaMemset(d_c, 0, c.size() * sizeof(float));
    int wrong = 0;
    for (int row = 0; row < m; ++row)
      for (int column = 0; column < n; ++column) {
        float sum = 0;
        for (int i = 0; i < k; ++i) sum += float((row * k + i) % 7) * float((i * n + column) % 5);
        wrong += c[row * n + column] != sum;
      }
    printf("%s: %d wrong\n", name, wrong);
  };
  fragments<<<dim3(n / 8, m / 16), 32>>>(d_a, d_b, d_c);
  show("fragments");
  slabs<<<dim3(n / 64, m / 64), 128>>>(d_a, d_b, d_c);
  show("slabs");
  padded<<<dim3(n / 64, m / 64), 128>>>(d_a, d_b, d_c);
  show("padded");
}
