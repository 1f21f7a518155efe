// One mistake per argument. Each is in a line with the comment "// MISTAKE", or the finding names no line.
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

__global__ void no_guard(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i] = static_cast<float>(n);  // MISTAKE no_guard
}

__global__ void guarded(float* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = static_cast<float>(n);
}

__global__ void past_shared(float* x) {
  __shared__ float s[8];
  s[threadIdx.x] = 1;  // MISTAKE past_shared
  x[threadIdx.x] = s[threadIdx.x];
}

__global__ void past_dynamic(float* x) {
  extern __shared__ float s[];
  s[threadIdx.x + 1] = 1;  // MISTAKE past_dynamic
  x[threadIdx.x] = 1;
}

__global__ void misaligned(float* x) {
  const auto* const four = reinterpret_cast<const float4*>(x + 1);
  const float4 v = four[threadIdx.x];  // MISTAKE misaligned
  x[threadIdx.x] = v.x;
}

__global__ void small_copy(const float* x) {
  __shared__ float s[2];
  __pipeline_memcpy_async(s, x, 8);  // MISTAKE small_copy
}

__global__ void uninitialized_shared(float* x) {
  __shared__ float s[32];
  if (threadIdx.x < 16) s[threadIdx.x] = 1;
  __syncthreads();
  x[threadIdx.x] = s[threadIdx.x];  // MISTAKE uninitialized_shared
}

__global__ void copies(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x];  // MISTAKE uninitialized_global
}

__global__ void writes(float* x) {
  x[threadIdx.x] = 1;  // MISTAKE host_pointer null_pointer freed
}

__global__ void divergent(float* x) {
  __shared__ float s[64];
  s[threadIdx.x] = 1;
  if (threadIdx.x < 33) __syncthreads();  // MISTAKE divergent
  x[threadIdx.x] = s[threadIdx.x];
}

__global__ void foreign_lane(float* x) {
  float v = x[threadIdx.x];
  if (threadIdx.x < 16) v = __shfl_sync(0xffffu, v, 16);  // MISTAKE foreign_lane
  x[threadIdx.x] = v;
}

__global__ void adds_without_atomic(int* x) {
  __shared__ int s;
  if (threadIdx.x == 0) s = 0;
  __syncthreads();
  s += 1;  // MISTAKE adds_without_atomic
  __syncthreads();
  if (threadIdx.x == 0) *x = s;
}

__global__ void relies_on_lockstep(float* x) {
  __shared__ float s[32];
  s[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = s[31 - threadIdx.x];  // MISTAKE relies_on_lockstep
}

__global__ void global_race(int* x) {
  x[threadIdx.x] = static_cast<int>(threadIdx.x);
  x[(threadIdx.x + 40) % 64] = 7;  // MISTAKE global_race
}

__global__ void between_blocks(int* x) {
  if (threadIdx.x == 0) x[blockIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0 && blockIdx.x > 0) x[blockIdx.x] = x[blockIdx.x - 1] + 1;  // MISTAKE between_blocks
}

__global__ void doubles(float* x) { x[threadIdx.x] *= 2; }

int main(int, char** arguments) {
  const char* const mistake = arguments[1];
  const auto is = [&](const char* name) { return std::strcmp(mistake, name) == 0; };
  const int n = 64;
  float host[n] = {};
  float *x, *y;
  cudaMalloc(&x, n * sizeof(float));
  cudaMalloc(&y, n * sizeof(float));
  cudaMemset(x, 0, n * sizeof(float));
  int* const integers = reinterpret_cast<int*>(x);
  if (is("no_guard")) no_guard<<<1, n + 1>>>(x, n);
  if (is("guarded")) guarded<<<1, n + 1>>>(x, n);
  if (is("past_shared")) past_shared<<<1, 16>>>(x);
  if (is("misaligned")) misaligned<<<1, 8>>>(x);
  if (is("small_copy")) small_copy<<<1, 1>>>(x);
  if (is("past_dynamic")) past_dynamic<<<1, 16, 16 * sizeof(float)>>>(x);
  if (is("uninitialized_shared")) uninitialized_shared<<<1, 32>>>(x);
  if (is("uninitialized_global")) copies<<<1, 32>>>(y, x);
  if (is("host_pointer")) writes<<<1, 1>>>(host);
  if (is("null_pointer")) writes<<<1, 1>>>(nullptr);
  if (is("freed")) cudaFree(x);
  if (is("freed")) writes<<<1, 1>>>(x);
  if (is("divergent")) divergent<<<1, n>>>(x);
  if (is("foreign_lane")) foreign_lane<<<1, 32>>>(x);
  if (is("adds_without_atomic")) adds_without_atomic<<<1, n>>>(integers);
  if (is("relies_on_lockstep")) relies_on_lockstep<<<1, 32>>>(x);
  if (is("global_race")) global_race<<<1, n>>>(integers);
  if (is("between_blocks")) between_blocks<<<2, 32>>>(integers);
  if (is("device_pointer")) std::printf("%f\n", x[3]);             // MISTAKE device_pointer
  if (is("copied_by_memcpy")) std::memcpy(host, x, sizeof(host));  // MISTAKE copied_by_memcpy
  if (is("copies_uninitialized"))
    cudaMemcpy(host, y, sizeof(host), cudaMemcpyDeviceToHost);                // MISTAKE copies_uninitialized
  if (is("too_many_threads")) doubles<<<1, 2048>>>(x);                        // MISTAKE too_many_threads
  if (is("wrong_direction")) cudaMemcpy(host, x, 4, cudaMemcpyHostToDevice);  // MISTAKE wrong_direction
  if (is("looked_at")) {
    doubles<<<1, 2048>>>(x);
    std::printf("%s\n", cudaGetErrorString(cudaGetLastError()));
  }
  if (is("missing_wait") || is("waits")) {
    cudaStream_t first, second;
    cudaEvent_t event;
    cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    cudaEventCreate(&event);
    cudaDeviceSynchronize();
    doubles<<<1, n, 0, first>>>(x);
    cudaEventRecord(event, first);
    if (is("waits")) cudaStreamWaitEvent(second, event, 0);
    doubles<<<1, n, 0, second>>>(x);  // MISTAKE missing_wait
    cudaDeviceSynchronize();
  }
  if (is("graph_does_not_wait") || is("graph_waits")) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    doubles<<<1, n, 0, stream>>>(x);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&executable, graph, 0);
    cudaDeviceSynchronize();
    cudaGraphLaunch(executable, stream);
    if (is("graph_waits")) cudaStreamSynchronize(stream);
    doubles<<<1, n>>>(x);  // MISTAKE graph_does_not_wait
    cudaDeviceSynchronize();
  }
  if (is("host_is_early") || is("host_waits")) {
    float* managed;
    cudaMallocManaged(&managed, n * sizeof(float));
    for (int i = 0; i < n; ++i) managed[i] = 1;
    doubles<<<1, n>>>(managed);
    if (is("host_waits")) cudaDeviceSynchronize();
    const float value = managed[5];  // MISTAKE host_is_early
    cudaDeviceSynchronize();
    std::printf("%.0f\n", value > 0 ? 1.0f : 0.0f);
    cudaFree(managed);
  }
  cudaDeviceSynchronize();
  return 0;
}
