// An op of one's own: softsign(x) = x / (1 + |x|), with a kernel for the CPU and its gradient.
#pragma once

#include <convoy/convoy.h>

#include <cmath>

namespace convoy::examples {

/// y[i] = f(x[i]) for float and double, in parallel. on() calls the lambda for tensors on the CPU. For a
/// tensor on a GPU it throws, since there is no overload for CudaStream; on the meta device it only computes
/// shapes.
template <class F>
Tensor map(const Tensor& x, F f) {
  const Tensor y = Tensor::empty_like(x);
  on(y.stream(), [&](CpuStream& stream) {
    const auto compute = [&]<class T>(T) {
      const T* const from = x.view().as<T>();
      T* const to = y.view().as<T>();
      parallel_for(stream, x.numel(), 4096, [=](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) to[i] = f(from[i]);
      });
    };
    dispatch(ElementTypes<float, double>{"softsign"}, x.dtype(), compute);
  });
  return y;
}

inline Variable softsign(const Variable& x) {
  wait_ready(x);  // the bytes of a parameter may still be on their way from other ranks
  const Tensor y = map(x.value(), [](auto u) { return u / (1 + std::abs(u)); });
  return record("softsign", y, {x}, [x = x.value()](const Tensor& dy, std::span<GradSlot> dx) {
    const NoGrad no_grad;
    const Tensor slope = map(x, [](auto u) { return 1 / ((1 + std::abs(u)) * (1 + std::abs(u))); });
    dx[0].alias_or_accumulate((Variable(dy) * Variable(slope)).value());
  });
}

}  // namespace convoy::examples
