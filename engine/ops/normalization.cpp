#include "convoy/kernels/normalization.h"

#include <functional>

#include "convoy/engine/ops/detail.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/runtime/named_range.h"

namespace convoy {
namespace {

/// Checks a vector of parameters or statistics, which may be undefined.
void check_parameter(std::string_view op, std::string_view what, const Tensor& values, const Variable& x,
                     const Shape& expected) {
  if (!values.defined()) return;
  const DType type = is_half(x.dtype()) ? DType::f32 : x.dtype();
  check(values.dtype() == type, "{}: {} is {}, expected {} for an input of {}", op, what,
        to_string(values.dtype()), to_string(type), to_string(x.dtype()));
  check(detail::can_combine(values.device(), x.device()), "{}: {} is on {}, expected {} as the input", op,
        what, values.context().name(), x.context().name());
  check(values.shape() == expected, "{}: {} {}, expected {}", op, what, values.shape().text(),
        expected.text());
}

ConstView view_if_any(const Tensor& optional) { return optional.defined() ? optional.view() : ConstView(); }
Tensor value_of(const Variable& optional) { return optional.defined() ? optional.value() : Tensor(); }

/// Normalizes x, viewed as [samples, pixels, channels], in groups of adjacent channels.
Variable normalize(std::string_view name, const Variable& x, const Shape& sizes, std::int64_t groups,
                   const Variable& weight, const Variable& bias, double epsilon) {
  const detail::OpScope scope(name, x, weight, bias);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), detail::result_context(x, weight, bias));
  const DType computed = is_half(x.dtype()) ? DType::f32 : x.dtype();
  const Tensor means = Tensor::empty({sizes[0], groups, 2}, computed, y.context());
  const Tensor inverse_std = Tensor::empty({sizes[0], groups}, computed, y.context());
  on(y.stream(), [&](auto& s) {
    kernels::group_norm_forward(s, x.value().reshape(sizes).view(), view_if_any(value_of(weight)),
                                view_if_any(value_of(bias)), epsilon, y.reshape(sizes).view(), means.view(),
                                inverse_std.view());
  });

  // The mean, the distances from it and their squares, then subtract, scale, multiply, add. The caches serve the
  // later passes over a group. dx: two sums and five operations. The parameters' gradients: four operations.
  OpCost cost{.forward = detail::cost_of(x, {.flops = 8, .reads = 1, .writes = 1})};
  if (x.requires_grad()) cost.backward += detail::cost_of(x, {.flops = 11, .reads = 2, .writes = 1});
  const bool parameters =
      (weight.defined() && weight.requires_grad()) || (bias.defined() && bias.requires_grad());
  if (parameters) cost.backward += detail::cost_of(x, {.flops = 5, .reads = 2});
  return record(name, y, detail::defined_of({x, weight, bias}),
                [x = x.value(), weight = value_of(weight), has_bias = bias.defined(), means, inverse_std,
                 sizes](const Tensor& dy, std::span<GradSlot> slots) {
                  const bool has_weight = weight.defined();
                  const GradView dx = slots[0].claim();
                  const GradView dweight = has_weight ? slots[1].claim() : GradView();
                  const GradView dbias = has_bias ? slots[has_weight ? 2 : 1].claim() : GradView();
                  on(dy.stream(), [&](auto& s) {
                    kernels::group_norm_backward(s, dy.reshape(sizes).view(), x.reshape(sizes).view(),
                                                 view_if_any(weight), means.view(), inverse_std.view(), dx,
                                                 dweight, dbias);
                  });
                },
                cost,
                {{"elements", sizes[2]},
                 {"epsilon", epsilon},
                 {"has_weight", weight.defined()},
                 {"has_bias", bias.defined()}});
}

}  // namespace

Variable layer_norm(const Variable& x, const Shape& normalized, const Variable& weight, const Variable& bias,
                    double epsilon) {
  detail::check_floating("layer_norm", x);
  const int leading = x.shape().rank() - normalized.rank();
  bool matches = normalized.rank() > 0 && normalized.numel() > 0 && leading >= 0;
  for (int axis = 0; matches && axis < normalized.rank(); ++axis)
    matches = x.shape()[leading + axis] == normalized[axis];
  check(matches, "layer_norm: input {}, expected a shape that ends with {}", x.shape().text(),
        normalized.text());
  check_parameter("layer_norm", "weight", value_of(weight), x, normalized);
  check_parameter("layer_norm", "bias", value_of(bias), x, normalized);
  const std::int64_t elements = normalized.numel();
  return normalize("layer_norm", x, {x.shape().numel() / elements, 1, elements}, 1, weight, bias, epsilon);
}

Variable group_norm(const Variable& x, int groups, const Variable& weight, const Variable& bias,
                    double epsilon) {
  detail::check_floating("group_norm", x);
  check(x.shape().rank() >= 2, "group_norm: input {}, expected [N, …, C]", x.shape().text());
  const std::int64_t channels = x.shape()[-1];
  check(groups > 0 && channels > 0 && channels % groups == 0,
        "group_norm: {} groups of the channels of {}, expected a divisor of {}", groups, x.shape().text(),
        channels);
  check_parameter("group_norm", "weight", value_of(weight), x, {channels});
  check_parameter("group_norm", "bias", value_of(bias), x, {channels});
  const std::int64_t pixels = detail::product_of(x.shape(), 1, x.shape().rank() - 1);
  return normalize("group_norm", x, {x.shape()[0], pixels, channels}, groups, weight, bias, epsilon);
}

namespace {

/// The inputs of an op.
struct NormInputs {
  const Variable &x, &gamma, &beta, &residual;  // the residual may be undefined
  const BatchNormStatistics& running;
  BatchNormOptions options;

  Tensor empty_result() const {
    return Tensor::empty(x.shape(), x.dtype(), detail::result_context(x, gamma, beta, residual));
  }
  ConstView residual_view() const { return residual.defined() ? residual.value().view() : View(); }
};

/// A batch norm, in tensors that the backward function keeps.
struct NormTensors {
  Tensor gamma, beta;
  BatchNormStatistics running;
  BatchNormOptions options;

  explicit NormTensors(const NormInputs& in)
      : gamma(in.gamma.value()), beta(in.beta.value()), running(in.running), options(in.options) {}
  kernels::BatchNorm view() const {
    return {gamma.view(),
            beta.view(),
            running.running_mean.view(),
            running.running_var.view(),
            options,
            running.batch.defined() ? running.batch.view() : View()};
  }
};

/// The statistics of a batch, in tensors.
struct SavedTensors {
  Tensor mean, inverse_std, coefficients;  // coefficients: undefined for the backward pass with a residual

  SavedTensors(const NormTensors& norm, const DeviceContext& context)
      : mean(Tensor::empty(norm.gamma.shape(), norm.gamma.dtype(), context)),
        inverse_std(Tensor::empty_like(mean)),
        coefficients(Tensor::empty({2, mean.numel()}, mean.dtype(), context)) {}
  kernels::SavedStatistics view() const {
    return {mean.view(), inverse_std.view(), coefficients.defined() ? coefficients.view() : View()};
  }
};

/// Returns the cost of the op. Each direction makes two passes: one for sums per channel, which the forward
/// needs only for statistics of the batch, and one over the data. A residual's gradient is written only after
/// an activation.
OpCost cost_of_batch_norm(const Variable& x, const Variable& gamma, const Variable& beta, bool residual,
                          FusedActivation activation, bool training) {
  const int r = residual ? 1 : 0, m = activation != FusedActivation::none ? 1 : 0;
  OpCost cost;
  // The moments: subtract an origin, sum, square, sum of squares.
  if (training) cost.forward += detail::cost_of(x, {.flops = 4, .reads = 1});
  // Normalization: subtract, multiply, add. In inference: multiply, add.
  cost.forward += detail::cost_of(x, {.flops = (training ? 3 : 2) + r + m, .reads = 1 + r, .writes = 1});
  // Without a residual, a GPU computes the activation's derivative from x. With one, it reads y once, and writes
  // the masked gradient for the residual, which then replaces dy and y. In inference both passes read y.
  const int y1 = m * (training ? r : 1), y2 = training ? 0 : m;
  // The sums of dy and of dy x̂, for the gradients of gamma and beta, and in training for dx.
  if (training || gamma.requires_grad() || beta.requires_grad())
    cost.backward += detail::cost_of(x, {.flops = 5 + m, .reads = 2 + y1, .writes = training ? r * m : 0});
  // dx. In training: x̂ again, a multiplication, two subtractions, the factor. In inference: the factor.
  cost.backward += detail::cost_of(
      x, {.flops = (training ? 6 : 1) + m, .reads = 2 + y2, .writes = 1 + (training ? 0 : r * m)});
  return cost;
}

/// Records the op. `run(stream, arrays, gradients)` calls its backward kernels. `recompute` is that of
/// detail::RecomputableBackward, or null; the kernels do not read y then.
template <class Run>
Variable record_batch_norm(const Tensor& y, const NormInputs& in, bool training, Run run,
                           std::function<void(const Stream&, const Tensor&)> recompute,
                           std::vector<OpAttribute> attributes = {}) {
  const FusedActivation activation = in.options.activation;
  Node::Backward backward = [x = in.x.value(),
                             saved_y = activation == FusedActivation::relu && !recompute ? y : Tensor(),
                             has_activation = activation != FusedActivation::none,
                             run](const Tensor& dy, std::span<GradSlot> slots) {
    // The order matters: x may be its own residual, and then the slot claimed first overwrites and the other
    // accumulates. Without an activation the residual's gradient is dy itself, so no kernel writes it.
    kernels::BatchNormGradients gradients{.x = slots[0].claim()};
    gradients.gamma = slots[1].claim();
    gradients.beta = slots[2].claim();
    if (has_activation && slots.size() > 3) gradients.residual = slots[3].claim();
    const ConstView result = saved_y.defined() ? saved_y.view() : View();
    on(dy.stream(), [&](auto& s) {
      run(s, kernels::BackwardArrays{dy.view(), x.view(), result}, gradients);
    });
    if (!has_activation && slots.size() > 3) slots[3].alias_or_accumulate(dy);
  };
  if (recompute) backward = detail::RecomputableBackward{std::move(backward), std::move(recompute)};
  return record("batch_norm", y, detail::defined_of({in.x, in.gamma, in.beta, in.residual}),
                std::move(backward),
                cost_of_batch_norm(in.x, in.gamma, in.beta, in.residual.defined(), activation, training),
                std::move(attributes));
}

/// Normalizes by the statistics of the batch: that of this process, or of all ranks of `group`.
Variable batch_norm_train(const NormInputs& in, const std::shared_ptr<ProcessGroup>& group = nullptr) {
  const Tensor y = in.empty_result(), x = in.x.value();
  const NormTensors norm(in);
  SavedTensors saved(norm, y.context());
  const std::int64_t length = 1 + 2 * norm.gamma.numel();  // n, and two numbers per channel
  if (group == nullptr) {
    on(y.stream(), [&](auto& s) {
      kernels::batch_norm_forward(s, norm.view(), x.view(), in.residual_view(), saved.view(), y.view());
    });
  } else {
    const Tensor local = Tensor::empty({length}, DType::f64, x.context());
    const Tensor moments = Tensor::empty({group->size(), length}, DType::f64, x.context());
    on(y.stream(), [&](auto& s) { kernels::sync_batch_norm_moments(s, x.view(), local.view()); });
    group->all_gather(local, moments);
    on(y.stream(), [&](auto& s) {
      kernels::sync_batch_norm_statistics(s, norm.view(), moments.view(), saved.view());
      kernels::batch_norm_normalize(s, norm.view(), x.view(), in.residual_view(), saved.view(), y.view());
    });
  }
  std::function<void(const Stream&, const Tensor&)> recompute;
  if (in.residual.defined())
    saved.coefficients = Tensor();
  else if (y.context().kind() == DeviceKind::cuda && in.options.activation != FusedActivation::gelu)
    recompute = [norm, saved, x](const Stream& stream, const Tensor& again) {
      on(stream, [&](auto& s) {
        kernels::batch_norm_normalize(s, norm.view(), x.view(), View(), saved.view(), again.view());
      });
    };
  return record_batch_norm(
      y, in, /*training=*/true,
      [norm, saved, group, length](auto& s, const kernels::BackwardArrays& arrays,
                                   const kernels::BatchNormGradients& gradients) {
        if (group == nullptr)
          return kernels::batch_norm_backward(s, norm.view(), arrays, saved.view(), gradients);
        const Tensor sums = Tensor::empty({length}, DType::f64, saved.mean.context());
        kernels::sync_batch_norm_sums(s, norm.view(), arrays, saved.view(), sums.view(), gradients);
        group->all_reduce(sums);  // even if x wants no gradient: every rank must make the call
        kernels::sync_batch_norm_backward(s, norm.view(), arrays, saved.view(), sums.view(), gradients);
      },
      std::move(recompute));
}

Variable batch_norm_infer(NormInputs in) {
  if (in.options.activation == FusedActivation::gelu) {  // no kernel computes the gradient of both
    in.options.activation = FusedActivation::none;
    return gelu(batch_norm_infer(in));
  }
  const Tensor y = in.empty_result();
  const NormTensors norm(in);
  on(y.stream(), [&](auto& s) {
    kernels::batch_norm_inference(s, norm.view(), in.x.value().view(), in.residual_view(), y.view());
  });
  return record_batch_norm(
      y, in, /*training=*/false,
      [norm](auto& s, const kernels::BackwardArrays& arrays, const kernels::BatchNormGradients& gradients) {
        kernels::batch_norm_inference_backward(s, norm.view(), arrays, gradients);
      },
      nullptr,
      {{"running_mean", norm.running.running_mean},
       {"running_var", norm.running.running_var},
       {"epsilon", norm.options.epsilon},
       {"relu", norm.options.activation == FusedActivation::relu}});
}

/// Checks the arguments of batch_norm() and sync_batch_norm().
void check_norm_inputs(const NormInputs& in) {
  detail::check_floating("batch_norm", in.x);
  wait_ready(in.x, in.gamma, in.beta, in.residual);
  check(in.x.shape().rank() >= 2, "batch_norm: input {}, expected [N, …, C]", in.x.shape().text());
  const auto check_one = [&](std::string_view what, const Tensor& values) {
    check_parameter("batch_norm", what, values, in.x, {in.x.shape()[-1]});
  };
  check_one("scale", in.gamma.value());
  check_one("shift", in.beta.value());
  check_one("running mean", in.running.running_mean);
  check_one("running variance", in.running.running_var);
  if (const Tensor& batch = in.running.batch; batch.defined())
    check(batch.dtype() == DType::f64 && batch.shape() == Shape{1} &&
              detail::can_combine(batch.device(), in.x.device()),
          "batch_norm: the number of the batch is {} {} on {}, expected f64 [1] on {}",
          to_string(batch.dtype()), batch.shape().text(), batch.context().name(), in.x.context().name());
  if (!in.residual.defined()) return;
  check(in.options.activation != FusedActivation::gelu,
        "batch_norm with a residual: found a GELU, expected a ReLU or no activation");
  detail::check_alike("batch_norm with a residual", in.x, in.residual);
  check(in.residual.shape() == in.x.shape(), "batch_norm: residual {}, expected the input's shape {}",
        in.residual.shape().text(), in.x.shape().text());
}

}  // namespace

Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                    const BatchNormStatistics& running, bool training, BatchNormOptions options,
                    const Variable& residual) {
  const NamedRange range("batch_norm");
  const NormInputs in{x, gamma, beta, residual, running, options};
  check_norm_inputs(in);
  if (!training) return batch_norm_infer(in);
  check(x.shape()[-1] == 0 || x.shape().numel() != x.shape()[-1],
        "batch_norm: input {} has one value per channel, expected more; train with a larger batch",
        x.shape().text());
  return batch_norm_train(in);
}

Variable sync_batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                         const BatchNormStatistics& running, const std::shared_ptr<ProcessGroup>& group,
                         BatchNormOptions options, const Variable& residual) {
  const NamedRange range("batch_norm");
  const NormInputs in{x, gamma, beta, residual, running, options};
  check_norm_inputs(in);
  // Without data there is nothing to gather.
  const bool is_meta = detail::result_context(x, gamma, beta, residual).kind() == DeviceKind::meta;
  return batch_norm_train(in, is_meta ? nullptr : group);
}

}  // namespace convoy
