__global__ void add(const float* x, const float* y, float* z, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = x[i] + y[i];
}

// host_z = host_x + host_y. The arrays of the host are pinned memory; x, y and z are on the device. Each stream copies one of
// the inputs, so both copies may run at the same time. When the function returns, host_z must be complete.
//
// TODO: two waits are missing, one of a stream and one of the host.
void add_on_two_streams(const float* host_x, const float* host_y, float* host_z, float* x, float* y, float* z,
                        int n, cudaStream_t first, cudaStream_t second) {
  const size_t bytes = n * sizeof(float);
  cudaMemcpyAsync(x, host_x, bytes, cudaMemcpyHostToDevice, first);
  cudaMemcpyAsync(y, host_y, bytes, cudaMemcpyHostToDevice, second);
  add<<<(n + 255) / 256, 256, 0, first>>>(x, y, z, n);
  cudaMemcpyAsync(host_z, z, bytes, cudaMemcpyDeviceToHost, first);
}
