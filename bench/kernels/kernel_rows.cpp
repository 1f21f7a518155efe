#include "bench/kernels/kernel_rows.h"

#include <fmt/format.h>

#include <span>
#include <type_traits>
#include <utility>

#include "convoy/engine/tensor/tensor.h"
#include "convoy/kernels/augment.h"
#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/broadcast.h"
#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/matmul.h"
#include "convoy/kernels/optimizer_step.h"
#include "convoy/kernels/pool2d.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/softmax.h"

namespace convoy::bench {
namespace {

constexpr std::int64_t kChannels = 64;  // as in the first group of ResNet-18
constexpr std::int64_t kSide = 32;
constexpr std::int64_t kFloat = 4;  // bytes
constexpr Conv2dOptions k3x3{.stride = 1, .padding = 1};

/// An array of a kernel, filled with one value, or with a permutation of its indices.
struct Array {
  Shape shape;
  DType dtype = DType::f32;
  double value = 0.5;
  bool is_permutation = false;
};

Tensor allocated(const Array& array, const DeviceContext& device) {
  if (!array.is_permutation) return Tensor::full(array.shape, array.value, array.dtype, device);
  std::vector<std::int32_t> order(static_cast<std::size_t>(array.shape.numel()));
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<std::int32_t>((i * 7919) % order.size());  // a prime that does not divide the size
  return Tensor::from(order, array.shape, device);
}

/// Returns the row of a kernel that reads `read` bytes and writes `written` bytes, and that is called with the stream and
/// its arrays. The first array is the largest.
template <class Kernel>
KernelRow row_of(std::string name, std::int64_t read, std::int64_t written, const std::vector<Array>& arrays,
                 Kernel kernel) {
  return {.name = std::move(name),
          .shape = arrays.front().shape.text(),
          .bytes_read = read,
          .bytes_written = written,
          .prepare = [arrays, kernel](const DeviceContext& device) {
            std::vector<Tensor> tensors;
            for (const Array& array : arrays) tensors.push_back(allocated(array, device));
            return [device, tensors, kernel] { on(device.stream(), [&](auto& s) { kernel(s, tensors); }); };
          }};
}

/// Collects rows over arrays of one size.
class Rows {
 public:
  explicit Rows(std::int64_t elements)
      : images_(std::max<std::int64_t>(2, elements / (kSide * kSide * kChannels))) {}

  Shape image_shape() const { return {images_, kSide, kSide, kChannels}; }
  std::int64_t images() const { return images_; }
  std::int64_t array_bytes() const { return image_shape().numel() * kFloat; }

  /// Adds row_of() these arguments.
  template <class Kernel>
  void add(std::string name, std::int64_t read, std::int64_t written, const std::vector<Array>& arrays,
           Kernel kernel) {
    rows_.push_back(row_of(std::move(name), read, written, arrays, kernel));
  }

  /// Adds a kernel over `count` f32 arrays [N, 32, 32, 64], which it reads `reads` times and writes `writes`
  /// times, and over `others`.
  template <class Kernel>
  void add_map(std::string name, std::size_t count, int reads, int writes, Kernel kernel,
               const std::vector<Array>& others = {}) {
    std::vector<Array> arrays(count, {image_shape()});
    arrays.insert(arrays.end(), others.begin(), others.end());
    add(std::move(name), reads * array_bytes(), writes * array_bytes(), arrays, kernel);
  }

  std::vector<KernelRow> take() { return std::move(rows_); }

 private:
  std::int64_t images_;
  std::vector<KernelRow> rows_;
};

GradView written(const Tensor& tensor) { return GradView(tensor.view()); }
GradView added(const Tensor& tensor) { return GradView(tensor.view(), GradMode::accumulate); }

void add_elementwise(Rows& rows) {
  rows.add_map("copy", 2, 1, 1, [](auto& s, auto& a) { kernels::scale(s, a[0].view(), 1, written(a[1])); });
  rows.add_map("fill", 1, 0, 1, [](auto& s, auto& a) { kernels::fill(s, 0.5, a[0].view()); });
  rows.add_map("add", 3, 2, 1,
               [](auto& s, auto& a) { kernels::add(s, a[0].view(), a[1].view(), a[2].view()); });
  rows.add_map("mul_accumulated", 3, 3, 1, [](auto& s, auto& a) {
    kernels::binary(s, kernels::BinaryOp::mul, a[0].view(), a[1].view(), added(a[2]));
  });
  for (const auto& [name, op] :
       {std::pair("relu", kernels::UnaryOp::relu), std::pair("gelu", kernels::UnaryOp::gelu)}) {
    rows.add_map(fmt::format("{}_forward", name), 2, 1, 1,
                 [op = op](auto& s, auto& a) { kernels::unary_forward(s, op, a[0].view(), a[1].view()); });
    rows.add_map(fmt::format("{}_backward", name), 3, 2, 1, [op = op](auto& s, auto& a) {
      kernels::unary_backward(s, op, a[0].view(), a[1].view(), written(a[2]));
    });
  }

  const Shape shape = rows.image_shape();
  rows.add("cast_f32_to_bf16", rows.array_bytes(), rows.array_bytes() / 2, {{shape}, {shape, DType::bf16}},
           [](auto& s, auto& a) { kernels::cast(s, a[0].view(), a[1].view()); });
  rows.add_map(
      "dropout", 2, 1, 1,
      [](auto& s, auto& a) { kernels::dropout(s, a[0].view(), a[2].view(), 0.1, Random{}, written(a[1])); },
      {{{shape[0]}, DType::i32, 7}});
}

void add_reductions(Rows& rows) {
  const auto reduction = [&](std::string name, const Shape& result, DType type, auto kernel) {
    rows.add_map(std::move(name), 1, 1, 0, kernel, {{result, type}});
  };
  reduction("sum", {1}, DType::f32, [](auto& s, auto& a) { kernels::sum(s, a[0].view(), written(a[1])); });
  reduction("sum_rows", {kChannels}, DType::f32,
            [](auto& s, auto& a) { kernels::sum_rows(s, a[0].view(), written(a[1])); });
  reduction("global_norm", {1}, DType::f64, [](auto& s, auto& a) {
    const ConstView tensors[] = {a[0].view()};
    kernels::global_norm(s, tensors, a[1].view());
  });
  reduction("count_non_finite", {1}, DType::i32, [](auto& s, auto& a) {
    const ConstView tensors[] = {a[0].view()};
    kernels::count_non_finite(s, tensors, a[1].view());
  });
  rows.add_map("add_bias_relu", 2, 1, 1,
               [](auto& s, auto& a) { kernels::add_bias(s, a[0].view(), a[2].view(), a[1].view(), true); },
               {{{kChannels}}});
}

// Few features, so that memory bandwidth is the bound and not arithmetic.
void add_gemms(Rows& rows) {
  const Shape shape{rows.image_shape().numel() / kChannels, kChannels};
  rows.add("linear_forward_relu", rows.array_bytes(), rows.array_bytes(),
           {{shape}, {{kChannels, kChannels}}, {{kChannels}}, {shape}}, [](auto& s, auto& a) {
             kernels::linear_forward(s, a[0].view(), a[1].view(), a[2].view(), a[3].view(), true);
           });
}

void add_batch_norms(Rows& rows) {
  // Five arrays, six vectors of one number per channel, and the coefficients.
  const auto norm = [&](std::string name, int reads, int writes, auto kernel) {
    std::vector<Array> vectors(6, {{kChannels}});
    vectors.push_back({{2, kChannels}});
    rows.add_map(
        std::move(name), 5, reads, writes,
        [kernel](auto& s, auto& a) { kernel(s, a, std::span(a).subspan(5)); }, vectors);
  };
  const auto norm_of = [](auto& v, FusedActivation activation) -> kernels::BatchNorm {
    return {v[0].view(), v[1].view(), v[4].view(), v[5].view(), {.activation = activation}};
  };
  const auto forward = [=](auto& s, auto& a, auto v, ConstView residual, FusedActivation activation) {
    const kernels::BatchNorm layer = norm_of(v, activation);
    const kernels::SavedStatistics saved{v[2].view(), v[3].view(), v[6].view()};
    kernels::batch_norm_forward(s, layer, a[0].view(), residual, saved, a[1].view());
  };
  const auto backward = [=](auto& s, auto& a, auto v, GradView dresidual, FusedActivation activation) {
    kernels::batch_norm_backward(s, norm_of(v, activation), {a[0].view(), a[1].view(), a[4].view()},
                                 {v[2].view(), v[3].view(), dresidual.wanted() ? View() : v[6].view()},
                                 {written(a[2]), dresidual, written(v[4]), written(v[5])});
  };
  norm("batch_norm_forward", 1, 1,
       [=](auto& s, auto& a, auto v) { forward(s, a, v, {}, FusedActivation::none); });
  norm("batch_norm_forward_residual_relu", 2, 1,
       [=](auto& s, auto& a, auto v) { forward(s, a, v, a[2].view(), FusedActivation::relu); });
  norm("batch_norm_forward_gelu", 1, 1,
       [=](auto& s, auto& a, auto v) { forward(s, a, v, {}, FusedActivation::gelu); });
  norm("batch_norm_inference_relu", 1, 1, [=](auto& s, auto& a, auto v) {
    kernels::batch_norm_inference(s, norm_of(v, FusedActivation::relu), a[0].view(), {}, a[1].view());
  });
  norm("batch_norm_backward", 2, 1,
       [=](auto& s, auto& a, auto v) { backward(s, a, v, {}, FusedActivation::none); });
  norm("batch_norm_backward_relu", 2, 1,
       [=](auto& s, auto& a, auto v) { backward(s, a, v, {}, FusedActivation::relu); });
  norm("batch_norm_backward_gelu", 2, 1,
       [=](auto& s, auto& a, auto v) { backward(s, a, v, {}, FusedActivation::gelu); });
  norm("batch_norm_backward_residual_relu", 3, 2,
       [=](auto& s, auto& a, auto v) { backward(s, a, v, written(a[3]), FusedActivation::relu); });
}

void add_pools(Rows& rows) {
  const Shape shape = rows.image_shape();
  const Shape halved{shape[0], kSide / 2, kSide / 2, kChannels};
  const std::int64_t large = rows.array_bytes();
  const std::int64_t small = large / 4;
  const std::int64_t taps_bytes = halved.numel();
  const Pool2dOptions halves{.kernel = 2, .stride = 2};
  const auto pooling = [&](std::string name, const Shape& pooled, std::int64_t read,
                           std::int64_t written_bytes, auto kernel) {
    rows.add(std::move(name), read, written_bytes, {{shape}, {pooled}, {pooled, DType::u8, 0}},
             [kernel](auto& s, auto& a) { kernel(s, a[0], a[1], a[2]); });
  };
  pooling("max_pool2d_forward", halved, large, small + taps_bytes,
          [=](auto& s, auto& x, auto& y, auto& taps) {
            kernels::max_pool2d_forward(s, x.view(), y.view(), taps.view(), halves);
          });
  pooling("max_pool2d_backward", halved, small + taps_bytes, large,
          [=](auto& s, auto& x, auto& y, auto& taps) {
            kernels::max_pool2d_backward(s, y.view(), taps.view(), written(x), halves);
          });
  pooling("avg_pool2d_forward", halved, large, small, [=](auto& s, auto& x, auto& y, auto&) {
    kernels::avg_pool2d_forward(s, x.view(), y.view(), halves);
  });
  const Shape averaged{shape[0], kChannels};
  pooling(
      "global_avg_pool2d_forward", averaged, large, averaged.numel() * kFloat,
      [](auto& s, auto& x, auto& y, auto&) { kernels::global_avg_pool2d_forward(s, x.view(), y.view()); });
  pooling(
      "global_avg_pool2d_backward", averaged, averaged.numel() * kFloat, large,
      [](auto& s, auto& x, auto& y, auto&) { kernels::global_avg_pool2d_backward(s, y.view(), written(x)); });
}

void add_losses(Rows& rows) {
  constexpr std::int64_t kClasses = 1000;
  const Shape shape{std::max<std::int64_t>(1, rows.array_bytes() / (kFloat * kClasses)), kClasses};
  const std::int64_t bytes = shape.numel() * kFloat;
  const auto loss = [&](std::string name, std::int64_t written_bytes, auto kernel) {
    const Array of_row{{shape[0]}, DType::f32, 7}, two_of_row{{shape[0], 2}, DType::f32, 7},
        labels{{shape[0]}, DType::i32, 1};
    rows.add(std::move(name), bytes, written_bytes,
             {{shape}, labels, of_row, two_of_row, of_row, labels, {shape}}, kernel);
  };
  loss("softmax_cross_entropy_forward", 0, [](auto& s, auto& a) {
    kernels::softmax_cross_entropy_forward(s, a[0].view(), {.of_rows = a[1].view(), .smoothing = 0.1},
                                           a[2].view(), a[3].view(), a[5].view(), a[4].rows(0, 1).view());
  });
  loss("softmax_cross_entropy_backward", bytes, [](auto& s, auto& a) {
    kernels::softmax_cross_entropy_backward(s, a[2].rows(0, 1).view(), a[0].view(),
                                            {.of_rows = a[1].view(), .smoothing = 0.1}, a[3].view(),
                                            written(a[6]));
  });
}

/// Adds one optimizer step on `count` arrays with a small learning rate.
template <class Kernel>
void add_step(Rows& rows, std::string name, std::size_t count, int reads, int writes, Kernel kernel) {
  rows.add_map(std::move(name), count, reads, writes,
               [kernel, count](auto& s, auto& a) {
                 kernel(
                     s, a,
                     kernels::StepScalars{
                         .lr = a[count].view(), .grad_scale = {}, .skip = {}, .steps = a[count + 1].view()});
               },
               {{{1}, DType::f64, 1e-3}, {{1}, DType::f64, 0}});
}

void add_optimizers(Rows& rows) {
  add_step(rows, "sgd_step_momentum", 3, 3, 2, [](auto& s, auto& a, const kernels::StepScalars& scalars) {
    const kernels::SgdSlot slot{
        .parameter = a[0].view(), .gradient = a[1].view(), .momentum = a[2].view(), .low_precision_copy = {}};
    kernels::sgd_step(s, {{{slot}, {.momentum = 0.9, .weight_decay = 1e-4, .nesterov = true}}}, scalars);
  });
  add_step(rows, "adam_step", 4, 4, 3, [](auto& s, auto& a, const kernels::StepScalars& scalars) {
    const kernels::AdamSlot slot{.parameter = a[0].view(),
                                 .gradient = a[1].view(),
                                 .first_moment = a[2].view(),
                                 .second_moment = a[3].view(),
                                 .low_precision_copy = {}};
    kernels::adam_step(s, {{{slot}, {.weight_decay = 1e-2, .decoupled = true}}}, scalars);
  });
}

void add_augmentation(Rows& rows) {
  constexpr std::int64_t kColours = 3;
  const std::int64_t count = rows.images() * kChannels / kColours;
  const Shape shape{count, kSide, kSide, kColours};
  rows.add("augment", shape.numel(), shape.numel() * kFloat,
           {{shape, DType::u8, 100}, {{count}, DType::i32, 0, true}, {shape}}, [](auto& s, auto& a) {
             kernels::augment(s, a[0].view(), a[1].view(), a[1].view(),
                              {.crop_padding = 4, .flip = true, .cutout = 8}, Random{}, a[2].view());
           });
}

}  // namespace

std::vector<KernelRow> kernel_rows(std::int64_t elements) {
  Rows rows(elements);
  for (const auto& add : {add_elementwise, add_reductions, add_gemms, add_batch_norms, add_pools, add_losses,
                          add_optimizers, add_augmentation})
    add(rows);
  return rows.take();
}

std::vector<KernelRow> convolution_rows(std::int64_t batch) {
  std::vector<KernelRow> rows;
  for (const auto& [side, channels] : {std::pair{32, 64}, {16, 128}, {8, 256}, {4, 512}}) {
    const Array pixels{{batch, side, side, channels}, DType::bf16},
        filter{{channels, 3, 3, channels}, DType::bf16};
    const std::string name = fmt::format("conv2d_3x3/{}x{}x{}/", side, side, channels);
    const std::int64_t flops = 2 * pixels.shape.numel() * 9 * channels;
    const auto add = [&](const char* direction, const Array& second, const Array& out, auto kernel) {
      rows.push_back(row_of(name + direction, 2 * (pixels.shape.numel() + second.shape.numel()),
                            2 * out.shape.numel(), {pixels, second, out}, [kernel](auto& s, auto& a) {
                              if constexpr (std::is_same_v<decltype(s), CudaStream&>)
                                kernel(s, a[0].view(), a[1].view(), a[2].view());
                            }));
      rows.back().flops = flops;
    };
    add("forward", filter, pixels,
        [](auto& s, auto x, auto filters, View y) { kernels::conv2d_forward(s, x, filters, {}, y, k3x3); });
    add("backward_data", filter, pixels, [](auto& s, auto dy, auto filters, View dx) {
      kernels::conv2d_backward_data(s, dy, filters, GradView(dx), k3x3);
    });
    add("backward_filter", pixels, filter, [](auto& s, auto dy, auto x, View dfilter) {
      kernels::conv2d_backward_filter(s, dy, x, GradView(dfilter), k3x3);
    });
  }
  return rows;
}

}  // namespace convoy::bench
