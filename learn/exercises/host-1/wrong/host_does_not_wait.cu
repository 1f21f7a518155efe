// The host waits for the wrong stream, and returns too early.
__global__ void add(const float* x, const float* y, float* z, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}

// host_z = host_x + host_y
void add_on_two_streams(const float* host_x, const float* host_y, float* host_z, float* x, float* y, float* z,
                        int n, cudaStream_t first, cudaStream_t second) {
  const size_t bytes = n * sizeof(float);
  cudaEvent_t is_there;
  cudaEventCreateWithFlags(&is_there, cudaEventDisableTiming);
  cudaMemcpyAsync(x, host_x, bytes, cudaMemcpyHostToDevice, first);
  cudaMemcpyAsync(y, host_y, bytes, cudaMemcpyHostToDevice, second);
  cudaEventRecord(is_there, second);
  cudaStreamWaitEvent(first, is_there, 0);
  add<<<(n + 255) / 256, 256, 0, first>>>(x, y, z, n);
  cudaMemcpyAsync(host_z, z, bytes, cudaMemcpyDeviceToHost, first);
  cudaStreamSynchronize(second);
  cudaEventDestroy(is_there);
}
