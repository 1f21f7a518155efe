// kernels/conv2d.h on the GPU, by cuDNN. What cuDNN has no engines for, f64 and arrays of no elements, is
// computed by the plain loops.
#include "kernels/conv2d.h"

#include <algorithm>
#include <initializer_list>

#include "kernels/cuda/cudnn_conv2d_plans.h"
#include "kernels/cuda/launch.h"
#include "kernels/elementwise.h"

namespace convoy {
namespace {

// cuDNN's interface does not tell inputs from outputs.
void* unconst(ConstView view) { return const_cast<void*>(view.data); }

bool by_loops(ConstView output, ConstView x, ConstView filter) {
  return output.dtype == DType::f64 || output.numel() == 0 || x.numel() == 0 || filter.numel() == 0;
}

/// The largest power of two, up to what cuDNN can make use of, that divides all addresses (null: any).
int alignment_of(const Conv2dArrays& arrays) {
  std::uintptr_t bits = kCudnnAlignment;
  for (const void* address : {arrays.x, arrays.filter, arrays.bias, arrays.y})
    bits |= reinterpret_cast<std::uintptr_t>(address);
  return static_cast<int>(bits & (~bits + 1));  // the lowest bit
}

void run(CudaStream& stream, Conv2dProblem problem, const Conv2dArrays& arrays) {
  problem.alignment = alignment_of(arrays);
  stream.local<Conv2dPlans>().run(stream, problem, arrays);
}

/// Calls make(where) with the place where a gradient is to be written, and adds it to its destination if so
/// wanted. cuDNN could add by itself (beta = 1), but not all of its engines do, and timing them runs each
/// several times.
template <class Make>
void make_gradient(CudaStream& stream, GradView gradient, const Make& make) {
  if (gradient.mode == Mode::write) return make(gradient.data);
  const cuda::Scratch fresh(stream, gradient.bytes());
  make(fresh.as<void>());
  scale(stream, ConstView(fresh.as<void>(), gradient.shape, gradient.dtype), 1, gradient);
}

}  // namespace

void conv2d_forward(CudaStream& stream, ConstView x, ConstView filter, ConstView bias, View y,
                    Conv2dOptions options) {
  if (by_loops(y, x, filter)) return conv2d_forward_reference(stream, x, filter, bias, y, options);
  run(stream,
      {.direction = Conv2dDirection::forward,
       .dtype = y.dtype,
       .sizes = ConvSizes(x.shape, filter.shape, y.shape, options),
       .bias = bias.data != nullptr,
       .relu = options.relu},
      {unconst(x), unconst(filter), unconst(bias), y.data});
}

void conv2d_backward_data(CudaStream& stream, ConstView dy, ConstView filter, GradView dx,
                          Conv2dOptions options) {
  if (!dx.wanted() || by_loops(dx, dy, filter))
    return conv2d_backward_data_reference(stream, dy, filter, dx, options);
  make_gradient(stream, dx, [&](void* where) {
    run(stream,
        {.direction = Conv2dDirection::backward_data,
         .dtype = dx.dtype,
         .sizes = ConvSizes(dx.shape, filter.shape, dy.shape, options)},
        {where, unconst(filter), nullptr, unconst(dy)});
  });
}

void conv2d_backward_filter(CudaStream& stream, ConstView dy, ConstView x, GradView dfilter,
                            Conv2dOptions options) {
  if (!dfilter.wanted() || by_loops(dfilter, dy, x))
    return conv2d_backward_filter_reference(stream, dy, x, dfilter, options);
  make_gradient(stream, dfilter, [&](void* where) {
    run(stream,
        {.direction = Conv2dDirection::backward_filter,
         .dtype = dfilter.dtype,
         .sizes = ConvSizes(x.shape, dfilter.shape, dy.shape, options)},
        {unconst(x), where, nullptr, unconst(dy)});
  });
}

}  // namespace convoy
