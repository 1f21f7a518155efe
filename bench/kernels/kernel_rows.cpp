#include "bench/kernels/kernel_rows.h"

#include <array>
#include <utility>

#include "convoy/engine/tensor/tensor.h"
#include "convoy/kernels/augment.h"
#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/matmul.h"
#include "convoy/kernels/optimizer_step.h"
#include "convoy/kernels/pool2d.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/softmax_cross_entropy.h"

namespace convoy::bench {
namespace {

constexpr std::int64_t kChannels = 64;  // as in the first group of ResNet-18
constexpr std::int64_t kSide = 32;
constexpr std::int64_t kFloat = 4;  // bytes

/// Collects rows over arrays of one size. The kernel of a row is called with the stream and its arrays.
class Rows {
 public:
  explicit Rows(std::int64_t elements)
      : images_(std::max<std::int64_t>(2, elements / (kSide * kSide * kChannels))) {}

  Shape image_shape() const { return {images_, kSide, kSide, kChannels}; }
  std::int64_t images() const { return images_; }
  std::int64_t array_bytes() const { return image_shape().numel() * kFloat; }

  /// Adds a row with arbitrary arrays. `make` allocates them and returns the function that runs the kernel
  /// once.
  void add(std::string name, const Shape& shape, std::int64_t read, std::int64_t written,
           std::function<std::function<void()>(const DeviceContext&)> make) {
    rows_.push_back({.name = std::move(name),
                     .shape = shape.text(),
                     .bytes_read = read,
                     .bytes_written = written,
                     .prepare = std::move(make)});
  }

  /// Adds a kernel over `count` f32 arrays [N, 32, 32, 64], which it reads `reads` times and writes `writes`
  /// times.
  template <std::size_t count, class Kernel>
  void add_map(std::string name, int reads, int writes, Kernel kernel) {
    const Shape shape = image_shape();
    add(std::move(name), shape, reads * array_bytes(), writes * array_bytes(),
        [shape, kernel](const DeviceContext& device) {
          std::array<Tensor, count> arrays;
          for (Tensor& array : arrays) array = Tensor::full(shape, 0.5, DType::f32, device);
          return [device, arrays, kernel] { on(device.stream(), [&](auto& s) { kernel(s, arrays); }); };
        });
  }

  std::vector<KernelRow> take() { return std::move(rows_); }

 private:
  std::int64_t images_;
  std::vector<KernelRow> rows_;
};

GradView written(const Tensor& tensor) { return GradView(tensor.view()); }
GradView added(const Tensor& tensor) { return GradView(tensor.view(), GradMode::accumulate); }

void add_elementwise(Rows& rows) {
  rows.add_map<2>("copy", 1, 1, [](auto& s, auto& a) { kernels::scale(s, a[0].view(), 1, written(a[1])); });
  rows.add_map<1>("fill", 0, 1, [](auto& s, auto& a) { kernels::fill(s, 0.5, a[0].view()); });
  rows.add_map<3>("add", 2, 1,
                  [](auto& s, auto& a) { kernels::add(s, a[0].view(), a[1].view(), a[2].view()); });
  rows.add_map<3>("mul_accumulated", 3, 1,
                  [](auto& s, auto& a) { kernels::mul(s, a[0].view(), a[1].view(), added(a[2])); });
  rows.add_map<2>("relu_forward", 1, 1, [](auto& s, auto& a) {
    kernels::unary_forward(s, kernels::UnaryOp::relu, a[0].view(), a[1].view());
  });
  rows.add_map<3>("relu_backward", 2, 1, [](auto& s, auto& a) {
    kernels::unary_backward(s, kernels::UnaryOp::relu, a[0].view(), a[1].view(), written(a[2]));
  });
  rows.add_map<2>("gelu_forward", 1, 1, [](auto& s, auto& a) {
    kernels::unary_forward(s, kernels::UnaryOp::gelu, a[0].view(), a[1].view());
  });
  rows.add_map<3>("gelu_backward", 2, 1, [](auto& s, auto& a) {
    kernels::unary_backward(s, kernels::UnaryOp::gelu, a[0].view(), a[1].view(), written(a[2]));
  });

  const Shape shape = rows.image_shape();
  rows.add("cast_f32_to_bf16", shape, rows.array_bytes(), rows.array_bytes() / 2,
           [shape](const DeviceContext& device) {
             const Tensor x = Tensor::full(shape, 0.5, DType::f32, device);
             const Tensor y = Tensor::empty(shape, DType::bf16, device);
             return [=] { on(device.stream(), [&](auto& s) { kernels::cast(s, x.view(), y.view()); }); };
           });
  rows.add("dropout", shape, rows.array_bytes(), rows.array_bytes(), [shape](const DeviceContext& device) {
    const Tensor x = Tensor::full(shape, 0.5, DType::f32, device);
    const Tensor y = Tensor::empty_like(x);
    const Tensor ids = Tensor::full({shape[0]}, 7, DType::i32, device);
    return [=] {
      on(device.stream(),
         [&](auto& s) { kernels::dropout(s, x.view(), ids.view(), 0.1, Random{}, written(y)); });
    };
  });
}

void add_reductions(Rows& rows) {
  const Shape shape = rows.image_shape();
  const auto reduction = [&](std::string name, const Shape& result, DType type, auto kernel) {
    rows.add(std::move(name), shape, rows.array_bytes(), 0,
             [shape, result, type, kernel](const DeviceContext& device) {
               const Tensor x = Tensor::full(shape, 0.5, DType::f32, device);
               const Tensor y = Tensor::empty(result, type, device);
               return [=] { on(device.stream(), [&](auto& s) { kernel(s, x, y); }); };
             });
  };
  reduction("sum", {1}, DType::f32, [](auto& s, auto& x, auto& y) { kernels::sum(s, x.view(), written(y)); });
  reduction("sum_rows", {kChannels}, DType::f32,
            [](auto& s, auto& x, auto& y) { kernels::sum_rows(s, x.view(), written(y)); });
  reduction("global_norm", {1}, DType::f64, [](auto& s, auto& x, auto& y) {
    const ConstView tensors[] = {x.view()};
    kernels::global_norm(s, tensors, y.view());
  });
  reduction("count_non_finite", {1}, DType::i32, [](auto& s, auto& x, auto& y) {
    const ConstView tensors[] = {x.view()};
    kernels::count_non_finite(s, tensors, y.view());
  });
  rows.add(
      "add_bias_relu", shape, rows.array_bytes(), rows.array_bytes(), [shape](const DeviceContext& device) {
        const Tensor x = Tensor::full(shape, 0.5, DType::f32, device);
        const Tensor bias = Tensor::full({kChannels}, 0.5, DType::f32, device);
        const Tensor y = Tensor::empty_like(x);
        return [=] {
          on(device.stream(), [&](auto& s) { kernels::add_bias(s, x.view(), bias.view(), y.view(), true); });
        };
      });
}

// Few features, so that memory bandwidth is the bound and not arithmetic.
void add_gemms(Rows& rows) {
  const Shape shape{rows.image_shape().numel() / kChannels, kChannels};
  rows.add("linear_forward_relu", shape, rows.array_bytes(), rows.array_bytes(),
           [shape](const DeviceContext& device) {
             const Tensor x = Tensor::full(shape, 0.5, DType::f32, device);
             const Tensor weight = Tensor::full({kChannels, kChannels}, 0.5, DType::f32, device);
             const Tensor bias = Tensor::full({kChannels}, 0.5, DType::f32, device);
             const Tensor y = Tensor::empty_like(x);
             return [=] {
               on(device.stream(), [&](auto& s) {
                 kernels::linear_forward(s, x.view(), weight.view(), bias.view(), y.view(), true);
               });
             };
           });
}

void add_batch_norms(Rows& rows) {
  const Shape shape = rows.image_shape();
  const auto norm = [&](std::string name, int reads, int writes, auto kernel) {
    rows.add(std::move(name), shape, reads * rows.array_bytes(), writes * rows.array_bytes(),
             [shape, kernel](const DeviceContext& device) {
               std::array<Tensor, 5> arrays;
               for (Tensor& array : arrays) array = Tensor::full(shape, 0.5, DType::f32, device);
               std::array<Tensor, 7> vectors;
               for (Tensor& vector : vectors) vector = Tensor::full({kChannels}, 0.5, DType::f32, device);
               vectors.back() = Tensor::full({2, kChannels}, 0.5, DType::f32, device);
               return [=] { on(device.stream(), [&](auto& s) { kernel(s, arrays, vectors); }); };
             });
  };
  const auto norm_of = [](auto& v, FusedActivation activation) -> kernels::BatchNorm {
    return {v[0].view(), v[1].view(), v[4].view(), v[5].view(), {.activation = activation}};
  };
  const auto forward = [=](auto& s, auto& a, auto& v, ConstView residual, FusedActivation activation) {
    const kernels::BatchNorm layer = norm_of(v, activation);
    const kernels::SavedStatistics saved{v[2].view(), v[3].view(), v[6].view()};
    kernels::batch_norm_statistics(s, layer, a[0].view(), saved);
    kernels::batch_norm_normalize(s, layer, a[0].view(), residual, saved, a[1].view());
  };
  const auto backward = [=](auto& s, auto& a, auto& v, GradView dresidual, FusedActivation activation) {
    kernels::batch_norm_backward(s, norm_of(v, activation), {a[0].view(), a[1].view(), a[4].view()},
                                 {v[2].view(), v[3].view(), dresidual.wanted() ? View() : v[6].view()},
                                 {written(a[2]), dresidual, written(v[4]), written(v[5])});
  };
  norm("batch_norm_forward", 2, 1,
       [=](auto& s, auto& a, auto& v) { forward(s, a, v, {}, FusedActivation::none); });
  norm("batch_norm_forward_residual_relu", 3, 1,
       [=](auto& s, auto& a, auto& v) { forward(s, a, v, a[2].view(), FusedActivation::relu); });
  norm("batch_norm_forward_gelu", 2, 1,
       [=](auto& s, auto& a, auto& v) { forward(s, a, v, {}, FusedActivation::gelu); });
  norm("batch_norm_inference_relu", 1, 1, [=](auto& s, auto& a, auto& v) {
    kernels::batch_norm_inference(s, norm_of(v, FusedActivation::relu), a[0].view(), {}, a[1].view());
  });
  norm("batch_norm_backward", 4, 1,
       [=](auto& s, auto& a, auto& v) { backward(s, a, v, {}, FusedActivation::none); });
  norm("batch_norm_backward_relu", 4, 1,
       [=](auto& s, auto& a, auto& v) { backward(s, a, v, {}, FusedActivation::relu); });
  norm("batch_norm_backward_gelu", 4, 1,
       [=](auto& s, auto& a, auto& v) { backward(s, a, v, {}, FusedActivation::gelu); });
  norm("batch_norm_backward_residual_relu", 5, 2,
       [=](auto& s, auto& a, auto& v) { backward(s, a, v, written(a[3]), FusedActivation::relu); });
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
    rows.add(std::move(name), shape, read, written_bytes, [=](const DeviceContext& device) {
      const Tensor x = Tensor::full(shape, 0.5, DType::f32, device);
      const Tensor y = Tensor::full(pooled, 0.5, DType::f32, device);
      const Tensor taps = Tensor::full(pooled, 0, DType::u8, device);
      return [=] { on(device.stream(), [&](auto& s) { kernel(s, x, y, taps); }); };
    });
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
  const Shape permuted{shape[0], kChannels, kSide, kSide};
  pooling("nhwc_to_nchw", permuted, large, large,
          [](auto& s, auto& x, auto& y, auto&) { kernels::nhwc_to_nchw(s, x.view(), written(y)); });
}

void add_losses(Rows& rows) {
  constexpr std::int64_t kClasses = 1000;
  const Shape shape{std::max<std::int64_t>(1, rows.array_bytes() / (kFloat * kClasses)), kClasses};
  const std::int64_t bytes = shape.numel() * kFloat;
  const auto loss = [&](std::string name, std::int64_t written_bytes, auto kernel) {
    rows.add(std::move(name), shape, bytes, written_bytes, [shape, kernel](const DeviceContext& device) {
      const Tensor logits = Tensor::full(shape, 0.5, DType::f32, device);
      const Tensor labels = Tensor::full({shape[0]}, 1, DType::i32, device);
      std::array<Tensor, 3> of_row;
      for (Tensor& numbers : of_row) numbers = Tensor::full({shape[0]}, 7, DType::f32, device);
      const Tensor correct = Tensor::empty_like(labels);
      const Tensor dlogits = Tensor::empty_like(logits);
      return
          [=] { on(device.stream(), [&](auto& s) { kernel(s, logits, labels, of_row, correct, dlogits); }); };
    });
  };
  loss("softmax_cross_entropy_forward", 0,
       [](auto& s, auto& logits, auto& labels, auto& of_row, auto& correct, auto&) {
         kernels::softmax_cross_entropy_forward(s, logits.view(), labels.view(), {.smoothing = 0.1},
                                                of_row[0].view(), of_row[1].view(), correct.view(),
                                                of_row[2].rows(0, 1).view());
       });
  loss("softmax_cross_entropy_backward", bytes,
       [](auto& s, auto& logits, auto& labels, auto& of_row, auto&, auto& dlogits) {
         kernels::softmax_cross_entropy_backward(s, of_row[0].rows(0, 1).view(), logits.view(), labels.view(),
                                                 of_row[1].view(), {.smoothing = 0.1}, written(dlogits));
       });
}

/// Adds one optimizer step on `count` arrays with a small learning rate.
template <std::size_t count, class Kernel>
void add_step(Rows& rows, std::string name, int reads, int writes, Kernel kernel) {
  const Shape shape = rows.image_shape();
  rows.add(std::move(name), shape, reads * rows.array_bytes(), writes * rows.array_bytes(),
           [shape, kernel](const DeviceContext& device) {
             std::array<Tensor, count> arrays;
             for (Tensor& array : arrays) array = Tensor::full(shape, 0.5, DType::f32, device);
             const Tensor lr = Tensor::full({1}, 1e-3, DType::f64, device);
             const Tensor steps = Tensor::zeros({1}, DType::f64, device);
             return [=] {
               const kernels::StepScalars scalars{
                   .lr = lr.view(), .grad_scale = {}, .skip = {}, .steps = steps.view()};
               on(device.stream(), [&](auto& s) { kernel(s, arrays, scalars); });
             };
           });
}

void add_optimizers(Rows& rows) {
  add_step<3>(rows, "sgd_step_momentum", 3, 2, [](auto& s, auto& a, const kernels::StepScalars& scalars) {
    const kernels::SgdSlot slot{
        .parameter = a[0].view(), .gradient = a[1].view(), .momentum = a[2].view(), .low_precision_copy = {}};
    kernels::sgd_step(s, {{{slot}, {.momentum = 0.9, .weight_decay = 1e-4, .nesterov = true}}}, scalars);
  });
  add_step<4>(rows, "adam_step", 4, 3, [](auto& s, auto& a, const kernels::StepScalars& scalars) {
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
  rows.add("augment", shape, shape.numel(), shape.numel() * kFloat, [shape](const DeviceContext& device) {
    const Tensor images = Tensor::full(shape, 100, DType::u8, device);
    std::vector<std::int32_t> order(static_cast<std::size_t>(shape[0]));
    for (std::size_t i = 0; i < order.size();
         ++i)  // a permutation: 7919 is prime and does not divide the count
      order[i] = static_cast<std::int32_t>((i * 7919) % order.size());
    const Tensor index = Tensor::from(order, {shape[0]}, device);
    const Tensor out = Tensor::empty(shape, DType::f32, device);
    return [=] {
      on(device.stream(), [&](auto& s) {
        kernels::augment(s, images.view(), index.view(), index.view(),
                         {.crop_padding = 4, .flip = true, .cutout = 8}, Random{}, out.view());
      });
    };
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

}  // namespace convoy::bench
