#include "../../common/lesson.h"

void lesson::run(Case& at) {
  const int n = at.size(0), steps = at.size(1);
  float *w, *g, *rate;
  cudaMalloc(&w, n * sizeof(float));
  cudaMalloc(&g, n * sizeof(float));
  cudaMalloc(&rate, sizeof(float));
  std::vector<float> expected = at.fill(w, n), now(n);
  at.fill(g, n);
  at.fill(rate, 1);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaDeviceSynchronize();
  cudaGraphExec_t graph = capture(w, g, rate, n, stream);
  if (graph == nullptr) at.fail("capture() failed: %s", cudaGetErrorString(cudaGetLastError()));
  cudaDeviceSynchronize();
  cudaMemcpy(now.data(), w, n * sizeof(float), cudaMemcpyDeviceToHost);
  if (now != expected) at.fail("w has changed during the capture, which should run nothing");
  for (int step = 0; step < steps; ++step) {
    const float value = step % 3 == 0 ? 1.0f : 0.5f;
    replay(graph, rate, value, stream);
    for (float& each : expected) each -= value * (2 * each + 1);
  }
  cudaStreamSynchronize(stream);
  at.compare(
      "w", w, n, [&](int i) { return expected[i]; },
      [&](int, float, char* text, std::size_t size) {
        std::snprintf(text, size, "after %d steps with the rates 1, 0.5, 0.5, 1, ...", steps);
      });
  cudaGraphExecDestroy(graph);
  cudaStreamDestroy(stream);
}
