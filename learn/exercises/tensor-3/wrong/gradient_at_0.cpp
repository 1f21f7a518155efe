// y is never negative.
#include <cstddef>
#include <span>

void relu(std::span<const float> x, std::span<float> y) {
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] < 0 ? 0 : x[i];
}

void relu_backward(std::span<const float> dy, std::span<const float> y, std::span<float> dx,
                   bool accumulate) {
  for (std::size_t i = 0; i < dy.size(); ++i) {
    const float part = y[i] < 0 ? 0 : dy[i];
    dx[i] = accumulate ? dx[i] + part : part;
  }
}
