#include "convoy/kernels/conv2d.h"
#include "convoy/engine/ops/detail.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/reduce.h"

namespace convoy {

std::int64_t window_output_size(std::int64_t size, std::int64_t kernel, int stride, int padding, int dilation,
                                bool ceil_mode) {
  check(kernel >= 1 && stride >= 1 && padding >= 0 && dilation >= 1,
        "window with kernel {}, stride {}, padding {}, dilation {}: expected at least 1, 1, 0 and 1", kernel,
        stride, padding, dilation);
  const std::int64_t span = dilation * (kernel - 1) + 1;
  const std::int64_t room = size + 2 * std::int64_t{padding} - span + (ceil_mode ? stride - 1 : 0);
  check(room >= 0, "a window of {} does not fit into {} pixels with padding {}", span, size, padding);
  const std::int64_t last = room / stride;
  return ceil_mode && last * stride >= size + padding ? last : last + 1;
}

namespace {

/// Checks the input, the filter and the groups of a convolution, or of a transposed one.
void check_arguments(std::string_view op, const Variable& x, const Variable& filter, int groups,
                     bool is_transposed) {
  detail::check_images(op, x);
  detail::check_alike(op, x, filter);
  detail::check_rank(op, "filter", filter.shape(), 4);
  check(groups >= 1 && filter.shape()[0] % groups == 0,
        "{}: found {} groups and filter {}, expected a divisor of its {} {} channels", op, groups,
        filter.shape().text(), filter.shape()[0], is_transposed ? "input" : "output");
  const std::int64_t channels = is_transposed ? filter.shape()[0] : filter.shape()[3] * groups;
  check(x.shape()[3] == channels, "{}: input {} has {} channels, filter {} expects {}", op, x.shape().text(),
        x.shape()[3], filter.shape().text(), channels);
}

}  // namespace

// y = x * w + b      dx = g transposed-* w      dw = x * g      db = sums of g over all pixels
// with g = dy, or 0 where y <= 0 if the op ends in a ReLU.
Variable conv2d(const Variable& x, const Variable& filter, const Variable& bias, Conv2dOptions options) {
  check_arguments("conv2d", x, filter, options.groups, /*is_transposed=*/false);
  const auto padding_of = [&](int axis, int Size2d::*of) -> Padding {
    if (options.padding != kSamePadding) return {options.padding.*of, options.padding.*of};
    check(options.stride == 1, "conv2d: found stride {} with kSamePadding, expected 1",
          options.stride.text());
    const std::int64_t total = options.dilation.*of * (filter.shape()[axis] - 1);
    return {total / 2, total - total / 2};
  };
  const Padding rows = padding_of(1, &Size2d::height), columns = padding_of(2, &Size2d::width);
  const bool is_even = rows.before == rows.after && columns.before == columns.after;
  if (!is_even || options.padding_mode != PaddingMode::zeros) {
    const Variable padded = pad(x, {{}, rows, columns, {}}, options.padding_mode);
    options.padding = 0;
    options.padding_mode = PaddingMode::zeros;
    return conv2d(padded, filter, bias, options);
  }
  options.padding = {static_cast<int>(rows.before), static_cast<int>(columns.before)};
  const auto outputs = [&](int axis, int Size2d::*of) {
    return window_output_size(x.shape()[axis], filter.shape()[axis], options.stride.*of, options.padding.*of,
                              options.dilation.*of);
  };
  const Shape shape{x.shape()[0], outputs(1, &Size2d::height), outputs(2, &Size2d::width), filter.shape()[0]};
  if (bias.defined()) detail::check_vector("conv2d", "bias", bias, x, filter.shape()[0]);

  const detail::OpScope scope("conv2d", x, filter, bias);
  Tensor y = Tensor::empty(shape, x.dtype(), detail::result_context(x, filter, bias));
  on(y.stream(), [&](auto& s) {
    kernels::conv2d_forward(s, x.value().view(), filter.value().view(),
                            bias.defined() ? bias.value().view() : View{}, y.view(), options);
  });
  const std::int64_t flops = 2 * y.numel() * filter.shape()[1] * filter.shape()[2] * filter.shape()[3];
  const int passes = (options.relu ? 3 : 0) + (bias.requires_grad() ? 1 : 0);
  const auto* const creator =
      x.is_leaf() ? nullptr : x.creator()->backward.target<detail::RecomputableBackward>();
  const auto recompute = creator == nullptr ? nullptr : creator->recompute;
  return record(
      "conv2d", y, detail::defined_of({x, filter, bias}),
      [like = x.without_value(), recompute, kept = recompute ? Tensor() : x.value(), w = filter.value(),
       y = options.relu ? y : Tensor(), options](const Tensor& dy, std::span<GradSlot> slots) {
        const Tensor g = detail::before_bias(dy, y, slots.size() > 2 ? slots[2] : GradSlot());
        const Tensor input =
            recompute && slots[1].wanted() ? Tensor::empty(like.shape(), like.dtype(), like.context()) : kept;
        // Parameters first, so that their all-reduce can start while dx is computed.
        slots[1].claim_on_side_stream(
            [g, input, recompute, options](const Stream& stream, const GradView& dw) {
              if (recompute) recompute(stream, input);
              on(stream,
                 [&](auto& s) { kernels::conv2d_backward_filter(s, g.view(), input.view(), dw, options); });
            });
        if (!slots[0].wanted()) return;
        on(dy.stream(),
           [&](auto& s) { kernels::conv2d_backward_data(s, g.view(), w.view(), slots[0].claim(), options); });
      },
      detail::gemm_cost(flops, x, filter, y, passes),
      {detail::attribute("stride", options.stride),
       detail::attribute("padding", options.padding),
       detail::attribute("dilation", options.dilation),
       {"groups", options.groups},
       {"relu", options.relu}});
}

namespace {

std::int64_t transposed_size(std::int64_t size, std::int64_t kernel, const ConvTranspose2dOptions& options) {
  const std::int64_t result =
      (size - 1) * options.stride - 2 * std::int64_t{options.padding} + kernel + options.output_padding;
  check(result >= 1,
        "conv2d_transpose: {} pixels with kernel {}, stride {}, padding {} and output padding {} make {} "
        "pixels, expected at least 1",
        size, kernel, options.stride, options.padding, options.output_padding, result);
  return result;
}

}  // namespace

// Let y' = conv(x', w) map the shape of y to the shape of x. Then
// y = w transposed-* x + b      dx = dy * w      dw = dy * x      db = sums of dy over all pixels
Variable conv2d_transpose(const Variable& x, const Variable& filter, const Variable& bias,
                          ConvTranspose2dOptions options) {
  constexpr std::string_view kOp = "conv2d_transpose";
  check_arguments(kOp, x, filter, options.groups, /*is_transposed=*/true);
  const std::int64_t channels = filter.shape()[3] * options.groups;
  if (bias.defined()) detail::check_vector(kOp, "bias", bias, x, channels);
  check(filter.shape()[1] >= 1 && filter.shape()[2] >= 1 && options.stride >= 1 && options.padding >= 0,
        "{}: found filter {}, stride {}, padding {}, expected at least 1, 1 and 0", kOp,
        filter.shape().text(), options.stride, options.padding);
  check(options.output_padding >= 0 && options.output_padding < options.stride,
        "{}: found output padding {}, expected 0 to {}, which is less than the stride", kOp,
        options.output_padding, options.stride - 1);
  const std::int64_t height = transposed_size(x.shape()[1], filter.shape()[1], options);
  const std::int64_t width = transposed_size(x.shape()[2], filter.shape()[2], options);

  const detail::OpScope scope(kOp, x, filter, bias);
  const Conv2dOptions convolution{
      .stride = options.stride, .padding = options.padding, .groups = options.groups};
  Tensor y = Tensor::empty({x.shape()[0], height, width, channels}, x.dtype(),
                           detail::result_context(x, filter, bias));
  on(y.stream(), [&](auto& s) {
    kernels::conv2d_backward_data(s, x.value().view(), filter.value().view(), GradView(y.view()),
                                  convolution);
    if (bias.defined()) kernels::add_bias(s, y.view(), bias.value().view(), y.view());
  });
  const std::int64_t filter_area = filter.shape()[1] * filter.shape()[2];
  OpCost cost = detail::gemm_cost(2 * x.shape().numel() * filter_area * filter.shape()[3], x, filter, y,
                                  bias.requires_grad() ? 1 : 0);
  if (bias.defined()) cost.forward.bytes += 2 * detail::bytes_of(y);  // the bias is added in its own pass
  return record(
      kOp.data(), y, detail::defined_of({x, filter, bias}),
      [x = x.value(), w = filter.value(), convolution](const Tensor& dy, std::span<GradSlot> slots) {
        // Parameters first, so that their all-reduce can start while dx is computed.
        slots[1].claim_on_side_stream([x, dy, convolution](const Stream& stream, const GradView& dw) {
          on(stream,
             [&](auto& s) { kernels::conv2d_backward_filter(s, x.view(), dy.view(), dw, convolution); });
        });
        on(dy.stream(), [&](auto& s) {
          if (slots.size() > 2 && slots[2].wanted()) kernels::sum_rows(s, dy.view(), slots[2].claim());
        });
        if (!slots[0].wanted()) return;
        const Tensor dx = Tensor::empty(x.shape(), x.dtype(), dy.context());
        on(dy.stream(), [&](auto& s) {
          kernels::conv2d_forward(s, dy.view(), w.view(), ConstView(), dx.view(), convolution);
        });
        slots[0].alias_or_accumulate(dx);
      },
      cost);
}

}  // namespace convoy
