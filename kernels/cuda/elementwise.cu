// Elementwise kernels on the GPU. Each is one device function of one element; `map` runs it over the arrays.
#include "kernels/elementwise.h"

#include "kernels/cuda/map.h"

namespace convoy {
namespace {

struct ReluForward {
  // In this order NaN passes through: a diverged training must not look healthy.
  template <class T>
  __device__ T operator()(T x) const {
    return T{0} > x ? T{0} : x;
  }
};

struct ReluBackward {
  template <class T>
  __device__ T operator()(T dy, T y) const {
    return y > T{0} ? dy : T{0};
  }
};

}  // namespace

void relu_forward(CudaStream& stream, ConstView x, View y) {
  cuda::map(stream, x, GradView(y), ReluForward{});
}

void relu_backward(CudaStream& stream, ConstView dy, ConstView y, GradView dx) {
  cuda::map(stream, dy, y, dx, ReluBackward{});
}

}  // namespace convoy
