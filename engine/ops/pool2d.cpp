#include "convoy/kernels/pool2d.h"

#include "convoy/engine/ops/detail.h"
#include "convoy/engine/ops/ops.h"

namespace convoy {
namespace {

Shape pooled_shape(std::string_view op, const Variable& x, Pool2dOptions options) {
  detail::check_floating(op, x);
  detail::check_rank(op, "input", x.shape(), 4);
  detail::check_pixels(op, x.shape());
  check(options.padding <= options.kernel / 2, "{}: padding {} is more than half of kernel {}", op,
        options.padding, options.kernel);
  return {x.shape()[0], window_output_size(x.shape()[1], options.kernel, options.stride, options.padding),
          window_output_size(x.shape()[2], options.kernel, options.stride, options.padding), x.shape()[3]};
}

std::vector<OpAttribute> attributes_of(Pool2dOptions options) {
  return {{"kernel", options.kernel}, {"stride", options.stride}, {"padding", options.padding}};
}

/// Returns the cost of one direction of pooling x to y.
Cost cost_of_pooling(const Variable& x, const Tensor& y, Pool2dOptions options) {
  return {.flops = y.numel() * options.kernel * options.kernel,
          .bytes = detail::bytes_of(x) + detail::bytes_of(y)};
}

}  // namespace

Variable max_pool2d(const Variable& x, Pool2dOptions options) {
  const detail::OpScope scope("max_pool2d", x);
  Tensor y = Tensor::empty(pooled_shape("max_pool2d", x, options), x.dtype(), x.context());
  Tensor taps = Tensor::empty(y.shape(), kernels::type_of_taps(options), x.context());
  on(y.stream(),
     [&](auto& s) { kernels::max_pool2d_forward(s, x.value().view(), y.view(), taps.view(), options); });
  Cost cost = cost_of_pooling(x, y, options);
  cost.bytes += detail::bytes_of(taps);
  return record(
      "max_pool2d", y, {x},
      [taps, options](const Tensor& dy, std::span<GradSlot> dx) {
        on(dy.stream(),
           [&](auto& s) { kernels::max_pool2d_backward(s, dy.view(), taps.view(), dx[0].claim(), options); });
      },
      {.forward = cost, .backward = cost}, attributes_of(options));
}

Variable avg_pool2d(const Variable& x, Pool2dOptions options) {
  const detail::OpScope scope("avg_pool2d", x);
  Tensor y = Tensor::empty(pooled_shape("avg_pool2d", x, options), x.dtype(), x.context());
  on(y.stream(), [&](auto& s) { kernels::avg_pool2d_forward(s, x.value().view(), y.view(), options); });
  const Cost cost = cost_of_pooling(x, y, options);
  return record(
      "avg_pool2d", y, {x},
      [options](const Tensor& dy, std::span<GradSlot> dx) {
        on(dy.stream(), [&](auto& s) { kernels::avg_pool2d_backward(s, dy.view(), dx[0].claim(), options); });
      },
      {.forward = cost, .backward = cost}, attributes_of(options));
}

Variable global_avg_pool2d(const Variable& x) {
  detail::check_floating("global_avg_pool2d", x);
  detail::check_rank("global_avg_pool2d", "input", x.shape(), 4);
  detail::check_pixels("global_avg_pool2d", x.shape());
  const detail::OpScope scope("global_avg_pool2d", x);
  Tensor y = Tensor::empty({x.shape()[0], x.shape()[3]}, x.dtype(), x.context());
  on(y.stream(), [&](auto& s) { kernels::global_avg_pool2d_forward(s, x.value().view(), y.view()); });
  const std::int64_t bytes = detail::bytes_of(x) + detail::bytes_of(y);
  return record("global_avg_pool2d", y, {x},
                [](const Tensor& dy, std::span<GradSlot> dx) {
                  on(dy.stream(),
                     [&](auto& s) { kernels::global_avg_pool2d_backward(s, dy.view(), dx[0].claim()); });
                },
                {.forward = {.flops = x.shape().numel(), .bytes = bytes},
                 .backward = {.flops = y.numel(), .bytes = bytes}});
}

}  // namespace convoy
