#include <cstddef>
#include <span>

// y = x where x is positive, 0 where it is not, and NaN where x is NaN. y may be the memory of x.
void relu(std::span<const float> x, std::span<float> y) {
  // TODO
}

// The gradient of x: dy where y is positive or NaN, and 0 elsewhere. It is added to dx if `accumulate`. Otherwise dx is
// uninitialized, and may be the memory of dy.
void relu_backward(std::span<const float> dy, std::span<const float> y, std::span<float> dx,
                   bool accumulate) {
  // TODO
}
