#include "../../common/lesson.h"

// Other inputs in each step, on the stream of the graph.
__global__ void set_inputs(float* x, float* y, int step, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    x[i] = static_cast<float>((i + 3 * step) % 7 + 1), y[i] = static_cast<float>((i + 2 * step) % 5 - 7);
}

void lesson::run(Case& at) {
  const int n = at.size(0), steps = at.size(1);
  float* arrays[6];  // x, y, dz, dx, dy, sum
  for (float*& array : arrays) {
    cudaMalloc(&array, n * sizeof(float));
    at.clear(array, n);
  }
  auto& [x, y, dz, dx, dy, sum] = arrays;
  cudaStream_t stream, other;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  cudaDeviceSynchronize();
  // What a kernel that runs during the capture would store.
  set_inputs<<<(n + 255) / 256, 256, 0, stream>>>(x, y, 0, n);
  cudaStreamSynchronize(stream);
  cudaMemset(dz, 0, n * sizeof(float));
  cudaDeviceSynchronize();
  cudaGraphExec_t graph = capture(x, y, dz, dx, dy, sum, n, stream, other);
  if (graph == nullptr) at.fail("capture() failed: %s", cudaGetErrorString(cudaGetLastError()));
  cudaDeviceSynchronize();
  for (const auto& [name, array] : {std::pair("dx", dx), std::pair("dy", dy), std::pair("sum", sum)}) {
    float first = 0;
    cudaMemcpy(&first, array, sizeof(float), cudaMemcpyDeviceToHost);
    if (!std::isnan(first))
      at.fail("%s has changed during the capture: gradient_of_%c ran at once, and is not part of the graph",
              name, name[1]);
  }
  for (int step = 0; step < steps; ++step) {
    set_inputs<<<(n + 255) / 256, 256, 0, stream>>>(x, y, step, n);
    cudaGraphLaunch(graph, stream);
    cudaStreamSynchronize(stream);
    const auto x_of = [&](int i) { return static_cast<float>((i + 3 * step) % 7 + 1); };
    const auto y_of = [&](int i) { return static_cast<float>((i + 2 * step) % 5 - 7); };
    const auto dz_of = [&](int i) { return 2 * x_of(i) * y_of(i) - 3; };
    const auto because = [](const char* what) {
      return [what](int, float, char* text, std::size_t size) {
        std::snprintf(text, size, "%s was that of an earlier replay", what);
      };
    };
    at.compare(
        "dx", dx, n, [&](int i) { return dz_of(i) * y_of(i); }, because("dz"));
    at.compare(
        "dy", dy, n, [&](int i) { return dz_of(i) * x_of(i); }, because("dz"));
    at.compare(
        "sum", sum, n, [&](int i) { return dz_of(i) * y_of(i) + dz_of(i) * x_of(i); }, because("dy"));
  }
  cudaGraphExecDestroy(graph);
  cudaStreamDestroy(stream);
  cudaStreamDestroy(other);
}
