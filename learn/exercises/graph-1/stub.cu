// A training whose step is captured once: w -= rate * g, where g = 2 w + 1. Each step has another rate.
//
// capture() is called once, before the first step, and replay() once per step. w, g and rate are arrays of the device; rate has
// one element. Nothing may run during the capture. TODO: in this version, all steps have the rate of the capture.
__global__ void gradient(const float* w, float* g, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) g[i] = 2 * w[i] + 1;
}

__global__ void update(float* w, const float* g, float rate, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) w[i] -= rate * g[i];
}

// Returns the graph of a step.
cudaGraphExec_t capture(float* w, float* g, float* rate, int n, cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  gradient<<<(n + 255) / 256, 256, 0, stream>>>(w, g, n);
  update<<<(n + 255) / 256, 256, 0, stream>>>(w, g, 1, n);
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  return executable;
}

// One step with this rate. The host does not wait.
void replay(cudaGraphExec_t graph, float* rate, float value, cudaStream_t stream) {
  cudaGraphLaunch(graph, stream);
}
