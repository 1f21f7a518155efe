// A backward pass of z = x y, element by element: dz = 2 z - 3, then dx = dz y and dy = dz x, and sum = dx + dy.
__global__ void gradient_of_z(const float* x, const float* y, float* dz, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dz[i] = 2 * x[i] * y[i] - 3;
}

__global__ void gradient_of_x(const float* dz, const float* y, float* dx, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dx[i] = dz[i] * y[i];
}

__global__ void gradient_of_y(const float* dz, const float* x, float* dy, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) dy[i] = dz[i] * x[i];
}

__global__ void total(const float* dx, const float* dy, float* sum, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) sum[i] = dx[i] + dy[i];
}

// Returns the graph of the four kernels, or null if the capture has failed.
cudaGraphExec_t capture(const float* x, const float* y, float* dz, float* dx, float* dy, float* sum, int n,
                        cudaStream_t stream, cudaStream_t other) {
  const int blocks = (n + 255) / 256;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaEvent_t fork, join;
  cudaEventCreateWithFlags(&fork, cudaEventDisableTiming);
  cudaEventCreateWithFlags(&join, cudaEventDisableTiming);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  gradient_of_z<<<blocks, 256, 0, stream>>>(x, y, dz, n);
  cudaEventRecord(fork, stream);
  cudaStreamWaitEvent(other, fork, 0);
  gradient_of_x<<<blocks, 256, 0, stream>>>(dz, y, dx, n);
  gradient_of_y<<<blocks, 256, 0, other>>>(dz, x, dy, n);
  cudaEventRecord(join, other);
  cudaStreamWaitEvent(stream, join, 0);
  total<<<blocks, 256, 0, stream>>>(dx, dy, sum, n);
  const cudaError_t status = cudaStreamEndCapture(stream, &graph);
  cudaEventDestroy(fork);
  cudaEventDestroy(join);
  if (status != cudaSuccess) return nullptr;
  cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  return executable;
}
