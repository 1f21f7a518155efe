// kernels/conv2d.h on the GPU, by cuDNN. f64 and empty arrays, for which cuDNN has no engines, use the
// reference kernels. So do convolutions that no engine can run.
#include "convoy/kernels/conv2d.h"

#include <initializer_list>

#include "convoy/kernels/cuda/cudnn/conv2d_plans.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {
namespace {

// cuDNN takes inputs and outputs as void*.
void* unconst(ConstView view) { return const_cast<void*>(view.data); }

/// Returns whether the reference kernels compute this convolution.
bool needs_reference(ConstView output, ConstView x, ConstView filter) {
  return output.dtype == DType::f64 || output.numel() == 0 || x.numel() == 0 || filter.numel() == 0;
}

/// Returns the largest power of two, up to kCudnnAlignment, that divides all addresses. Null has any
/// alignment.
int alignment_of(const Conv2dArrays& arrays) {
  std::uintptr_t bits = kCudnnAlignment;
  for (const void* address : {arrays.x, arrays.filter, arrays.bias, arrays.y})
    bits |= reinterpret_cast<std::uintptr_t>(address);
  return static_cast<int>(bits & (~bits + 1));  // the lowest bit
}

/// Returns false if cuDNN cannot compute the convolution.
bool run(CudaStream& stream, Conv2dProblem problem, const Conv2dArrays& arrays) {
  problem.alignment = alignment_of(arrays);
  return stream.local<Conv2dPlans>().run(stream, problem, arrays);
}

/// Computes a gradient. `arrays_with` returns the arrays of the call for an address of the result. Where no
/// engine can add to the gradient, temporary memory is added to it. Returns false if cuDNN cannot compute the
/// convolution.
template <class ArraysWith>
bool run_gradient(CudaStream& stream, Conv2dDirection direction, const ConvSizes& sizes, GradView gradient,
                  const ArraysWith& arrays_with) {
  Conv2dProblem problem{
      .direction = direction, .dtype = gradient.dtype, .sizes = sizes, .mode = gradient.mode};
  if (run(stream, problem, arrays_with(gradient.data))) return true;
  if (problem.mode == GradMode::overwrite) return false;
  problem.mode = GradMode::overwrite;
  const cuda::Scratch temporary(stream, gradient.bytes());
  const View result{temporary.as<void>(), gradient.shape, gradient.dtype};
  if (!run(stream, problem, arrays_with(result.data))) return false;
  scale(stream, result, 1, gradient);
  return true;
}

}  // namespace

void conv2d_forward(CudaStream& stream, ConstView x, ConstView filter, ConstView bias, View y,
                    Conv2dOptions options) {
  if (conv2d_forward_direct(stream, x, filter, bias, y, options)) return;
  const bool is_done =
      !needs_reference(y, x, filter) && run(stream,
                                            {.direction = Conv2dDirection::forward,
                                             .dtype = y.dtype,
                                             .sizes = ConvSizes(x.shape, filter.shape, y.shape, options),
                                             .bias = bias.data != nullptr,
                                             .relu = options.relu},
                                            {unconst(x), unconst(filter), unconst(bias), y.data});
  if (!is_done) conv2d_forward_reference(stream, x, filter, bias, y, options);
}

void conv2d_backward_data(CudaStream& stream, ConstView dy, ConstView filter, GradView dx,
                          Conv2dOptions options) {
  if (!dx.wanted() || needs_reference(dx, dy, filter))
    return conv2d_backward_data_reference(stream, dy, filter, dx, options);
  const ConvSizes sizes(dx.shape, filter.shape, dy.shape, options);
  const auto arrays_with = [&](void* to) -> Conv2dArrays {
    return {to, unconst(filter), nullptr, unconst(dy)};
  };
  const bool is_done = run_gradient(stream, Conv2dDirection::backward_data, sizes, dx, arrays_with);
  if (!is_done) conv2d_backward_data_reference(stream, dy, filter, dx, options);
}

void conv2d_backward_filter(CudaStream& stream, ConstView dy, ConstView x, GradView dfilter,
                            Conv2dOptions options) {
  if (!dfilter.wanted() || needs_reference(dfilter, dy, x))
    return conv2d_backward_filter_reference(stream, dy, x, dfilter, options);
  const ConvSizes sizes(x.shape, dfilter.shape, dy.shape, options);
  const auto arrays_with = [&](void* to) -> Conv2dArrays { return {unconst(x), to, nullptr, unconst(dy)}; };
  const bool is_done = run_gradient(stream, Conv2dDirection::backward_filter, sizes, dfilter, arrays_with);
  if (!is_done) conv2d_backward_filter_reference(stream, dy, x, dfilter, options);
}

}  // namespace convoy::kernels
