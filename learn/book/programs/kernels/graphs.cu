// A descent of 6 steps of two kernels: graphs launches | value | memory | forbidden.
#include <cstdio>
#include <cstring>

const int n = 1000, steps = 6;

__global__ void gradient(const float* w, float* g) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) g[i] = w[i] - 1;
}

__global__ void update(float* w, const float* g, float rate) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) w[i] -= rate * g[i];
}

__global__ void update_by(float* w, const float* g, const float* rate) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) w[i] -= *rate * g[i];
}

__global__ void set(float* to, float value) { *to = value; }

float rate_of(int step) { return step < 3 ? 0.5f : 0.25f; }

void forbidden(cudaStream_t stream, float* w) {
  const auto attempt = [&](const char* name, auto call) {
    cudaGraph_t graph = nullptr;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    const cudaError_t error = call(), at_end = cudaStreamEndCapture(stream, &graph);
    printf("%s: %s, then %s\n", name, cudaGetErrorName(error), cudaGetErrorName(at_end));
    cudaGetLastError();
  };
  attempt("wait", [&] { return cudaStreamSynchronize(stream); });
  attempt("allocate", [&] { return cudaMalloc(&w, 4); });
  attempt("ask", [&] { return cudaStreamQuery(stream); });
}

int main(int count, char** arguments) {
  const auto is = [&](const char* name) { return count > 1 && std::strcmp(arguments[1], name) == 0; };
  float *w, *g, *rate, result;
  cudaMalloc(&w, n * sizeof(float));
  cudaMalloc(&g, n * sizeof(float));
  cudaMalloc(&rate, sizeof(float));
  cudaMemset(w, 0, n * sizeof(float));
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaDeviceSynchronize();
  int calls = 0;

  if (is("forbidden")) {
    forbidden(stream, w);
  } else if (is("launches")) {
    for (int step = 0; step < steps; ++step) {
      gradient<<<4, 256, 0, stream>>>(w, g);
      update<<<4, 256, 0, stream>>>(w, g, rate_of(step));
      calls += 2;
    }
  } else {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    gradient<<<4, 256, 0, stream>>>(w, g);
    if (is("memory"))
      update_by<<<4, 256, 0, stream>>>(w, g, rate);
    else
      update<<<4, 256, 0, stream>>>(w, g, rate_of(0));
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&executable, graph, 0);
    for (int step = 0; step < steps; ++step) {
      if (is("memory") && (step == 0 || rate_of(step) != rate_of(step - 1))) {
        set<<<1, 1, 0, stream>>>(rate, rate_of(step));
        ++calls;
      }
      cudaGraphLaunch(executable, stream);
      ++calls;
    }
    cudaStreamSynchronize(stream);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
  if (calls > 0) {
    cudaStreamSynchronize(stream);
    cudaMemcpy(&result, w, sizeof(float), cudaMemcpyDeviceToHost);
    printf("%d launches, w[0] = %g\n", calls, result);
  }
  cudaStreamDestroy(stream);
  for (float* array : {w, g, rate}) cudaFree(array);
}
