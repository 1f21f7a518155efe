// kernels/norm_conv2d.h by the separate kernels of kernels/conv2d.h and kernels/batchnorm.h.
#pragma once

#include <type_traits>

#include "convoy/kernels/norm_conv2d.h"
#include "convoy/kernels/runtime/memory/memory.h"

namespace convoy::kernels::separate {

/// Temporary memory for an array. The destructor returns it to the stream's allocator. The kernels of the
/// stream that use it may still be queued; later users of the memory run after them.
template <class Stream>
class TemporaryArray {
 public:
  TemporaryArray(Stream& stream, const Shape& shape, DType dtype)
      : stream_(stream), view_(nullptr, shape, dtype) {
    view_.data = stream.memory().allocate(view_.bytes());
  }
  ~TemporaryArray() {
    if constexpr (std::is_same_v<Stream, CpuStream>)
      stream_.memory().release(view_.data, view_.bytes());
    else
      stream_.release(view_.data, view_.bytes());
  }
  TemporaryArray(const TemporaryArray&) = delete;
  TemporaryArray& operator=(const TemporaryArray&) = delete;

  const View& view() const { return view_; }

 private:
  Stream& stream_;
  View view_;
};

/// Calls f(u) for the input u of the convolution.
template <class Stream, class F>
void with_normalized(Stream& stream, ConstView x, const InputNorm& norm, const F& f) {
  if (norm.mean.data == nullptr) return f(x);
  const TemporaryArray u(stream, x.shape, x.dtype);
  batch_norm_normalize(stream, x, norm.mean, norm.coefficients, {}, u.view(), NormActivation::relu);
  f(u.view());
}

template <class Stream>
void forward(Stream& stream, ConstView x, const InputNorm& norm, ConstView filter, View y,
             const OutputStatistics& s, Conv2dOptions options) {
  with_normalized(stream, x, norm, [&](ConstView u) { conv2d_forward(stream, u, filter, {}, y, options); });
  batch_norm_statistics(stream, y, s.gamma, s.beta, s.mean, s.inverse_std, s.coefficients, s.running_mean,
                        s.running_var, s.options);
}

template <class Stream>
void backward_filter(Stream& stream, ConstView dy, ConstView x, const InputNorm& norm, GradView dfilter,
                     Conv2dOptions options) {
  with_normalized(stream, x, norm,
                  [&](ConstView u) { conv2d_backward_filter(stream, dy, u, dfilter, options); });
}

template <class Stream>
void backward_norm(Stream& stream, ConstView dy, ConstView filter, ConstView x, const InputNorm& norm,
                   GradView dx, GradView dgamma, GradView dbeta, Conv2dOptions options) {
  const TemporaryArray du(stream, x.shape, x.dtype);
  conv2d_backward_data(stream, dy, filter, GradView(du.view()), options);
  const auto run = [&](ConstView u) {
    batch_norm_backward(stream, du.view(), x, u, norm.gamma, norm.mean, norm.inverse_std, norm.coefficients,
                        dx, {}, dgamma, dbeta, {.activation = NormActivation::relu});
  };
  if constexpr (std::is_same_v<Stream, CpuStream>)
    with_normalized(stream, x, norm, run);  // the CPU reads the mask of the ReLU from u, a GPU from x
  else
    run({});
}

}  // namespace convoy::kernels::separate
