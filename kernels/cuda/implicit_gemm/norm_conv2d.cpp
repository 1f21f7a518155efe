// kernels/norm_conv2d.h on the GPU: by the kernels of this directory where the algorithm cache says so, else by
// the separate kernels.
#include "convoy/kernels/norm_conv2d.h"

#include <fmt/format.h>

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>

#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3.h"
#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3_filter.h"
#include "convoy/kernels/cuda/normalization/data_gradient.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/cuda/primitives/timing.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/shared/separate_norm_conv2d.h"

namespace convoy::kernels {
namespace {

constexpr const char* kFused = "fused";
constexpr const char* kSeparate = "separate";

using Array = separate::TemporaryArray<CudaStream>;

/// A convolution with batch norms.
struct Problem {
  DType dtype;
  Shape x, filter;
  Conv2dOptions options;
  bool has_norm;  // before the convolution

  std::int64_t inputs() const { return x[3]; }
  std::int64_t outputs() const { return filter[0]; }
  /// Returns the shape of the result of a supported convolution.
  Shape y() const { return {x[0], x[1], x[2], outputs()}; }

  double flops() const { return 2.0 * static_cast<double>(y().numel() * filter.numel() / outputs()); }
  /// Returns the key in the algorithm cache.
  std::string key() const {
    return fmt::format("{} {} n{} {}x{}x{} k{} {}x{} s{} p{}{}",
                       has_norm ? "norm conv2d" : "conv2d statistics", to_string(dtype), x[0], x[1], x[2],
                       inputs(), outputs(), filter[1], filter[2], options.stride, options.padding,
                       options.groups > 1 ? fmt::format(" g{}", options.groups) : "");
  }
  /// Returns whether the fused kernels compute it, in both directions.
  bool is_supported() const {
    if (x.rank() != 4) return false;
    const ConvSizes sizes(x, filter, y(), options);
    return x.numel() > 0 && implicit_gemm::supports_forward(dtype, sizes) &&
           outputs() <= implicit_gemm::kMaxNormChannels &&
           (!has_norm || (implicit_gemm::supports_backward_data(dtype, sizes) &&
                          implicit_gemm::supports_backward_filter(dtype, sizes) &&
                          inputs() <= implicit_gemm::kMaxNormChannels));
  }
};

namespace fused {

void forward(CudaStream& stream, ConstView x, const InputNorm& norm, ConstView filter, View y,
             const OutputStatistics& statistics) {
  implicit_gemm::forward(stream, x, {norm.mean, norm.coefficients}, filter, y, statistics,
                         implicit_gemm::default_variant(stream, y.shape));
}

void backward_filter(CudaStream& stream, ConstView dy, ConstView x, const InputNorm& norm, GradView dfilter) {
  const ConvSizes sizes(x.shape, dfilter.shape, dy.shape, {.padding = 1});
  implicit_gemm::backward_filter(stream, dy, x, norm.mean, norm.coefficients, dfilter,
                                 implicit_gemm::filter_ranges(sizes));
}

void backward_norm(CudaStream& stream, ConstView dy, ConstView filter, ConstView x, const InputNorm& norm,
                   GradView dx, GradView dgamma, GradView dbeta) {
  const Array factors(stream, {3, x.shape[3]}, DType::f32);
  const auto run = [&](View g) {
    implicit_gemm::backward_data(
        stream, dy, filter, g,
        {x, norm.gamma, norm.mean, norm.inverse_std, norm.coefficients, dgamma, dbeta, factors.view()},
        implicit_gemm::default_variant(stream, x.shape));
    batch_norm_data_gradient(stream, g, x, norm.mean, factors.view(), dx);
  };
  if (dx.wanted() && dx.mode == GradMode::overwrite) return run(dx);  // g is replaced by dx
  const Array g(stream, x.shape, x.dtype);
  run(g.view());
}

}  // namespace fused

/// Times a training step of the problem by the fused and by the separate kernels: forward pass, and with a
/// batch norm the gradients. Returns the faster way.
const char* faster_way(CudaStream& stream, const Problem& p) {
  const auto ones = [&](const Shape& shape, DType dtype) {
    auto array = std::make_unique<Array>(stream, shape, dtype);
    fill(stream, 1, array->view());
    return array;
  };
  const auto x = ones(p.x, p.dtype), filter = ones(p.filter, p.dtype), y = ones(p.y(), p.dtype);
  const auto dx = ones(p.x, p.dtype), dfilter = ones(p.filter, p.dtype);
  const auto before = ones({4, p.inputs()}, DType::f32), after = ones({8, p.outputs()}, DType::f32);
  const auto gradients = ones({2, p.inputs()}, DType::f32);
  const auto rows = [](const Array& array, std::int64_t first, std::int64_t count) {
    const std::int64_t channels = array.view().shape[1];
    return View{array.view().as<float>() + first * channels,
                count == 1 ? Shape{channels} : Shape{count, channels}, DType::f32};
  };
  InputNorm norm;
  if (p.has_norm) norm = {rows(*before, 0, 1), rows(*before, 1, 1), rows(*before, 1, 1), rows(*before, 2, 2)};
  const OutputStatistics statistics{
      rows(*after, 0, 1), rows(*after, 1, 1), rows(*after, 2, 1), rows(*after, 3, 1),
      rows(*after, 4, 2), rows(*after, 6, 1), rows(*after, 7, 1), {}};
  const GradView to_x(dx->view()), to_filter(dfilter->view()), dgamma(rows(*gradients, 0, 1)),
      dbeta(rows(*gradients, 1, 1));

  const std::vector<double> ms = cuda::measure_ms(
      stream, {[&] {
                 fused::forward(stream, x->view(), norm, filter->view(), y->view(), statistics);
                 if (!p.has_norm) return true;
                 fused::backward_filter(stream, y->view(), x->view(), norm, to_filter);
                 fused::backward_norm(stream, y->view(), filter->view(), x->view(), norm, to_x, dgamma,
                                      dbeta);
                 return true;
               },
               [&] {  // as batch_norm() and conv2d() in engine/ops, which normalize once
                 separate::with_normalized(stream, x->view(), norm, [&](ConstView u) {
                   separate::forward(stream, u, {}, filter->view(), y->view(), statistics, p.options);
                   if (p.has_norm) conv2d_backward_filter(stream, y->view(), u, to_filter, p.options);
                 });
                 if (p.has_norm)
                   separate::backward_norm(stream, y->view(), filter->view(), x->view(), norm, to_x, dgamma,
                                           dbeta, p.options);
                 return true;
               }});
  return ms[0] < ms[1] ? kFused : kSeparate;
}

/// Returns whether the fused kernels are chosen for the problem. Times both ways if that is allowed and there
/// is no entry yet.
bool chooses_fused(CudaStream& stream, const Problem& problem) {
  const CudaOptions& options = stream.cuda_options();
  if (options.convolutions == Convolutions::cudnn || !problem.is_supported()) return false;
  if (options.convolutions == Convolutions::implicit_gemm) return true;
  if (options.deterministic) return false;
  const std::string key = problem.key();
  std::optional<std::string> stored = stream.algorithm_cache().find(key);
  const bool is_known = stored == kFused || stored == kSeparate;
  if (!is_known && stream.autotune() &&
      problem.flops() >= stream.local<implicit_gemm::MinimumFlops>().value) {
    try {
      stream.algorithm_cache().insert(key, *(stored = faster_way(stream, problem)));
    } catch (const DeviceError&) {  // no memory; if the GPU has failed, the next call reports it
      return false;
    }
  }
  return stored == kFused;
}

/// Returns whether the fused kernels compute this call: chosen, and at addresses that they accept.
bool runs_fused(CudaStream& stream, const Problem& problem, std::initializer_list<const void*> addresses) {
  constexpr std::uintptr_t kAlignment = 16;
  for (const void* address : addresses)
    if (reinterpret_cast<std::uintptr_t>(address) % kAlignment != 0) return false;
  return chooses_fused(stream, problem);
}

}  // namespace

bool fuses_norm_conv2d(CudaStream& stream, DType dtype, const Shape& x, const Shape& filter,
                       Conv2dOptions options, bool has_norm) {
  return chooses_fused(stream, {dtype, x, filter, options, has_norm});
}

void norm_conv2d_forward(CudaStream& stream, ConstView x, const InputNorm& norm, ConstView filter, View y,
                         const OutputStatistics& statistics, Conv2dOptions options) {
  const Problem problem{x.dtype, x.shape, filter.shape, options, norm.mean.data != nullptr};
  if (runs_fused(stream, problem, {x.data, norm.mean.data, norm.coefficients.data, filter.data, y.data}))
    return fused::forward(stream, x, norm, filter, y, statistics);
  separate::forward(stream, x, norm, filter, y, statistics, options);
}

void norm_conv2d_backward_filter(CudaStream& stream, ConstView dy, ConstView x, const InputNorm& norm,
                                 GradView dfilter, Conv2dOptions options) {
  const bool has_norm = norm.mean.data != nullptr;  // without it, there is nothing to fuse
  const Problem problem{x.dtype, x.shape, dfilter.shape, options, has_norm};
  if (has_norm &&
      runs_fused(stream, problem, {dy.data, x.data, norm.mean.data, norm.coefficients.data, dfilter.data}))
    return fused::backward_filter(stream, dy, x, norm, dfilter);
  separate::backward_filter(stream, dy, x, norm, dfilter, options);
}

void norm_conv2d_backward_norm(CudaStream& stream, ConstView dy, ConstView filter, ConstView x,
                               const InputNorm& norm, GradView dx, GradView dgamma, GradView dbeta,
                               Conv2dOptions options) {
  const Problem problem{x.dtype, x.shape, filter.shape, options, /*has_norm=*/true};
  if (runs_fused(stream, problem,
                 {dy.data, x.data, norm.mean.data, norm.coefficients.data, filter.data, dx.data}))
    return fused::backward_norm(stream, dy, filter, x, norm, dx, dgamma, dbeta);
  separate::backward_norm(stream, dy, filter, x, norm, dx, dgamma, dbeta, options);
}

}  // namespace convoy::kernels
