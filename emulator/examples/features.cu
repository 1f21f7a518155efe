// What else cuemu supports: vectors, dynamic shared memory, atomics, half precision, groups, streams and
// events.
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
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

__global__ void low_precision(float* result) {
  const __half h = __float2half(0.1f) + __half(0.2f);
  const __nv_bfloat16 b = __float2bfloat16(1.0f) + __float2bfloat16(0.00390625f);  // 1 + 2^-8: rounds to even
  result[0] = __half2float(h);
  result[1] = __bfloat162float(b);
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
