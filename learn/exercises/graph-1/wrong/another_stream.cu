// The null stream does not capture, so the update runs once, during the capture.
// A training whose step is captured once: w -= rate * g, where g = 2 w + 1. Each step has another rate.
__global__ void gradient(const float* w, float* g, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) g[i] = 2 * w[i] + 1;
}

__global__ void update(float* w, const float* g, const float* rate, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) w[i] -= *rate * g[i];
}

__global__ void set(float* to, float value) { *to = value; }

// Returns the graph of a step.
cudaGraphExec_t capture(float* w, float* g, float* rate, int n, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  gradient<<<(n + 255) / 256, 256, 0, stream>>>(w, g, n);
  update<<<(n + 255) / 256, 256>>>(w, g, rate, n);
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  return executable;
}

// One step with this rate. The host does not wait.
void replay(cudaGraphExec_t graph, float* rate, float value, cudaStream_t stream) {
  set<<<1, 1, 0, stream>>>(rate, value);
  cudaGraphLaunch(graph, stream);
}
