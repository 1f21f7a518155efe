// What else cuemu supports: vectors, dynamic shared memory, atomics, half precision, tensor cores, asynchronous
// copies, groups, streams and events.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                               \
  do {                                                                            \
    const cudaError_t status = (call);                                            \
    if (status != cudaSuccess) {                                                  \
      std::printf("%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(status)); \
      std::exit(1);                                                               \
    }                                                                             \
  } while (false)

namespace cg = cooperative_groups;

__constant__ float scale[2];
__device__ int count = 0;

__global__ void vectors(const float4* x, float* y) {
  const float4 v = x[threadIdx.x];
  y[threadIdx.x] = scale[0] * (v.x + v.y + v.z + v.w) + scale[1];
}

template <class T>
__global__ void reversed(T* x) {
  extern __shared__ __align__(16) unsigned char bytes[];
  T* const s = reinterpret_cast<T*>(bytes);
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}

// The maximum of floats, as atomicCAS can make it.
__device__ float atomic_max(float* address, float value) {
  int* const bits = reinterpret_cast<int*>(address);
  int old = __float_as_int(-1.0f), expected;
  do {
    expected = old;
    old = atomicCAS(bits, expected, __float_as_int(fmaxf(value, __int_as_float(expected))));
  } while (old != expected);
  return __int_as_float(old);
}

__global__ void atomics(float* result) {
  atomic_max(&result[0], static_cast<float>(threadIdx.x));
  atomicAdd(&result[1], 0.5f);
  atomicAdd(&count, 1);
}

// Multiplies a matrix by the one that is 1 where the row is the column: the result is its left half. Lane 5 has two elements
// of row 1 and two of row 9.
__global__ void tensor_cores(float* result) {
  __shared__ __align__(16) __half a[16][16];
  const unsigned lane = threadIdx.x;
  for (unsigned i = lane; i < 256; i += 32) a[i / 16][i % 16] = __float2half(static_cast<float>(i));
  __syncwarp();
  const unsigned row = static_cast<unsigned>(__cvta_generic_to_shared(&a[lane % 16][lane / 16 * 8]));
  unsigned plain[4], transposed[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(plain[0]), "=r"(plain[1]), "=r"(plain[2]), "=r"(plain[3])
               : "r"(row)
               : "memory");
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(transposed[0]), "=r"(transposed[1]), "=r"(transposed[2]), "=r"(transposed[3])
               : "r"(row)
               : "memory");
  const unsigned g = lane / 4, t = lane % 4, one = 0x3c00;
  const unsigned b = g == 2 * t ? one : g == 2 * t + 1 ? one << 16 : 0;
  float d[2][4] = {};
  for (int i = 0; i < 2; ++i) {
    const unsigned(&left)[4] = i == 0 ? plain : transposed;
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(b), "r"(0));
  }
  if (lane == 5)
    for (int i = 0; i < 8; ++i) result[i] = d[i / 4][i % 4];
}

__global__ void low_precision(float* result) {
  const __half h = __float2half(0.1f) + __half(0.2f);
  const __nv_bfloat16 b = __float2bfloat16(1.0f) + __float2bfloat16(0.00390625f);  // 1 + 2^-8: rounds to even
  result[0] = __half2float(h);
  result[1] = __bfloat162float(b);
}

// Sums 4 x 4 vectors, of which the next four arrive while four are added.
__global__ void copies(const float4* x, float* sums) {
  __shared__ float4 four[2][4];
  const unsigned lane = threadIdx.x;
  const auto begin = [&](unsigned i) {
    __pipeline_memcpy_async(&four[i % 2][lane], &x[4 * i + lane], 16);
    __pipeline_commit();
  };
  float sum = 0;
  begin(0);
  for (unsigned i = 0; i < 4; ++i) {
    __pipeline_wait_prior(0);
    __syncthreads();
    if (i < 3) begin(i + 1);
    const float4 v = four[i % 2][3 - lane];  // that another thread has copied
    sum += v.x + v.y + v.z + v.w;
  }
  sums[lane] = sum;
}

__global__ void groups(int* result) {
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<8>(block);
  int sum = static_cast<int>(block.thread_rank());
  for (int d = tile.size() / 2; d > 0; d /= 2) sum += tile.shfl_down(sum, d);
  if (tile.thread_rank() == 0) result[tile.meta_group_rank()] = sum;
  block.sync();
}

__global__ void vote(int* result) {
  const int odd = __syncthreads_count(threadIdx.x % 2);
  if (threadIdx.x == 0) result[0] = odd;
}

int main() {
  float host[64];
  for (int i = 0; i < 64; ++i) host[i] = static_cast<float>(i);
  float *x, *y;
  CHECK(cudaMalloc(&x, sizeof(host)));
  CHECK(cudaMalloc((void**)&y, sizeof(host)));
  cudaStream_t stream;
  cudaEvent_t begin, end;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  const float factors[2] = {2, 1};
  CHECK(cudaMemcpyToSymbol(scale, factors, sizeof(factors)));
  CHECK(cudaMemcpy(x, host, sizeof(host), cudaMemcpyHostToDevice));
  CHECK(cudaEventRecord(begin, stream));
  vectors<<<1, 16, 0, stream>>>(reinterpret_cast<const float4*>(x), y);
  reversed<float><<<1, 16, 16 * sizeof(float), stream>>>(y);
  CHECK(cudaGetLastError());
  CHECK(cudaEventRecord(end, stream));
  CHECK(cudaEventSynchronize(end));
  float milliseconds;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  CHECK(cudaMemcpy(host, y, 16 * sizeof(float), cudaMemcpyDeviceToHost));
  std::printf("vectors: %.0f %.0f\n", host[0], host[15]);
  CHECK(cudaMemset(y, 0, sizeof(host)));
  atomics<<<2, 32>>>(y);
  int counted;
  CHECK(cudaMemcpyFromSymbol(&counted, count, sizeof(counted)));
  CHECK(cudaMemcpy(host, y, 2 * sizeof(float), cudaMemcpyDeviceToHost));
  std::printf("atomics: %.0f %.0f %d\n", host[0], host[1], counted);
  low_precision<<<1, 1>>>(y);
  CHECK(cudaMemcpy(host, y, 2 * sizeof(float), cudaMemcpyDeviceToHost));
  std::printf("low precision: %.8f %.8f\n", host[0], host[1]);
  tensor_cores<<<1, 32>>>(y);
  CHECK(cudaMemcpy(host, y, 8 * sizeof(float), cudaMemcpyDeviceToHost));
  std::printf("tensor cores: %.0f %.0f %.0f %.0f, %.0f %.0f %.0f %.0f\n", host[0], host[1], host[2], host[3],
              host[4], host[5], host[6], host[7]);
  copies<<<1, 4>>>(reinterpret_cast<const float4*>(x), y);
  CHECK(cudaMemcpy(host, y, 4 * sizeof(float), cudaMemcpyDeviceToHost));
  std::printf("copies: %.0f %.0f\n", host[0], host[3]);
  int* managed;
  CHECK(cudaMallocManaged(&managed, 8 * sizeof(int)));
  groups<<<1, 64>>>(managed);
  CHECK(cudaDeviceSynchronize());
  std::printf("groups: %d %d\n", managed[0], managed[7]);
  vote<<<1, 64>>>(managed);
  CHECK(cudaDeviceSynchronize());
  std::printf("vote: %d\n", managed[0]);
  CHECK(cudaFree(x));
  CHECK(cudaFree(y));
  CHECK(cudaFree(managed));
  CHECK(cudaEventDestroy(begin));
  CHECK(cudaEventDestroy(end));
  CHECK(cudaStreamDestroy(stream));
}
