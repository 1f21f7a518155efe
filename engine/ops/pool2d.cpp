#include "convoy/kernels/pool2d.h"

#include "convoy/engine/ops/detail.h"
#include "convoy/engine/ops/ops.h"

namespace convoy {
namespace {

/// Pools x to this shape, by the maximum or the average.
Variable pooled(const char* op, const Variable& x, const Shape& shape, const Pool2dOptions& options,
                bool is_max) {
  const detail::OpScope scope(op, x);
  Tensor y = Tensor::empty(shape, x.dtype(), x.context()), taps;
  if (is_max) taps = Tensor::empty(shape, kernels::type_of_taps(options), x.context());
  on(y.stream(), [&](auto& s) {
    if (is_max)
      kernels::max_pool2d_forward(s, x.value().view(), y.view(), taps.view(), options);
    else
      kernels::avg_pool2d_forward(s, x.value().view(), y.view(), options);
  });
  std::int64_t area = std::int64_t{options.kernel.height} * options.kernel.width;
  if (area == 0)  // adaptive: windows of the average size, rounded up
    area = ((x.shape()[1] - 1) / shape[1] + 1) * ((x.shape()[2] - 1) / shape[2] + 1);
  const Cost cost{.flops = y.numel() * area,
                  .bytes = detail::bytes_of(x) + detail::bytes_of(y) + (is_max ? detail::bytes_of(taps) : 0)};
  return record(op, y, {x},
                [taps, options](const Tensor& dy, std::span<GradSlot> dx) {
                  on(dy.stream(), [&](auto& s) {
                    if (taps.defined())
                      kernels::max_pool2d_backward(s, dy.view(), taps.view(), dx[0].claim(), options);
                    else
                      kernels::avg_pool2d_backward(s, dy.view(), dx[0].claim(), options);
                  });
                },
                {.forward = cost, .backward = cost},
                {detail::attribute("kernel", options.kernel),
                 detail::attribute("stride", options.stride),
                 detail::attribute("padding", options.padding),
                 {"count_include_pad", options.count_include_pad}});
}

Variable pool2d(const Variable& x, const Pool2dOptions& options, bool is_max) {
  const char* const op = is_max ? "max_pool2d" : "avg_pool2d";
  const auto& [kernel, stride, padding, ceil_mode, count_include_pad] = options;
  detail::check_images(op, x);
  check(padding.height <= kernel.height / 2 && padding.width <= kernel.width / 2,
        "{}: padding {} is more than half of kernel {}", op, padding.text(), kernel.text());
  const Shape shape{
      x.shape()[0],
      window_output_size(x.shape()[1], kernel.height, stride.height, padding.height, 1, ceil_mode),
      window_output_size(x.shape()[2], kernel.width, stride.width, padding.width, 1, ceil_mode),
      x.shape()[3]};
  return pooled(op, x, shape, options, is_max);
}

/// Uses ordinary windows if the size divides that of the images.
Variable adaptive_pool2d(const char* op, const Variable& x, Size2d size, bool is_max) {
  detail::check_images(op, x);
  check(size.height >= 1 && size.width >= 1, "{}: found the size {}, expected at least 1", op, size.text());
  const Size2d image(static_cast<int>(x.shape()[1]), static_cast<int>(x.shape()[2]));
  if (image.height % size.height == 0 && image.width % size.width == 0) {
    const Size2d window(image.height / size.height, image.width / size.width);
    return pool2d(x, {.kernel = window, .stride = window}, is_max);
  }
  return pooled(op, x, {x.shape()[0], size.height, size.width, x.shape()[3]}, {.kernel = 0}, is_max);
}

}  // namespace

Variable max_pool2d(const Variable& x, Pool2dOptions options) { return pool2d(x, options, true); }

Variable avg_pool2d(const Variable& x, Pool2dOptions options) { return pool2d(x, options, false); }

Variable adaptive_max_pool2d(const Variable& x, Size2d size) {
  return adaptive_pool2d("adaptive_max_pool2d", x, size, true);
}

Variable adaptive_avg_pool2d(const Variable& x, Size2d size) {
  if (size == 1) return unsqueeze(unsqueeze(global_avg_pool2d(x), 1), 1);
  return adaptive_pool2d("adaptive_avg_pool2d", x, size, false);
}

Variable global_avg_pool2d(const Variable& x) {
  detail::check_images("global_avg_pool2d", x);
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
