#include "convoy/engine/ops/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "convoy/engine/ops/detail.h"
#include "convoy/kernels/attention.h"

namespace convoy {
namespace {

using detail::as_batch;

constexpr const char* kName = "scaled_dot_product_attention";

void check_arguments(const Variable& q, const Variable& k, const Variable& v) {
  detail::check_floating(kName, q);
  detail::check_alike(kName, q, k);
  detail::check_alike(kName, q, v);
  const auto leading = [](const Variable& x) {
    return x.shape().sizes().first(static_cast<std::size_t>(x.shape().rank() - 2));
  };
  const bool has_ranks =
      q.shape().rank() >= 3 && k.shape().rank() == q.shape().rank() && v.shape().rank() == q.shape().rank();
  const bool fits = has_ranks && std::ranges::equal(leading(q), leading(k)) &&
                    std::ranges::equal(leading(q), leading(v)) && q.shape()[-1] == k.shape()[-1] &&
                    k.shape()[-2] == v.shape()[-2];
  check(fits, "{}: queries {}, keys {} and values {}, expected [..., T, D], [..., S, D] and [..., S, V]",
        kName, q.shape().text(), k.shape().text(), v.shape().text());
  check(q.shape()[-1] > 0 && v.shape()[-1] > 0 && v.shape()[-2] > 0,
        "{}: queries {} and values {}, expected at least one key and positive sizes of queries and values",
        kName, q.shape().text(), v.shape().text());
}

/// Returns the cost: two GEMMs and five operations per score in the forward. Backward computes the scores
/// again, and needs one GEMM for their gradients and one for each gradient that is wanted.
OpCost cost_of_attention(const Variable& q, const Variable& k, const Variable& v, std::int64_t batch,
                         bool causal) {
  const std::int64_t queries = q.shape()[-2], keys = k.shape()[-2], depth = q.shape()[-1],
                     width = v.shape()[-1];
  std::int64_t scores = queries * keys;
  if (causal) {
    const std::int64_t full = std::max<std::int64_t>(queries - keys, 0), partial = queries - full;
    scores = full * keys + partial * (partial + 1) / 2;
  }
  scores *= batch;
  const std::int64_t result = detail::bytes_of(q) / depth * width;
  const std::int64_t inputs = detail::bytes_of(q) + detail::bytes_of(k) + detail::bytes_of(v);
  OpCost cost{.forward = {.flops = scores * (2 * depth + 2 * width + 5), .bytes = inputs + result},
              .backward = {.flops = scores * (2 * depth + 2 * width + 5), .bytes = inputs + 2 * result}};
  for (const Variable* const x : {&q, &k, &v})
    if (x->requires_grad())
      cost.backward += {.flops = scores * 2 * x->shape()[-1], .bytes = detail::bytes_of(*x)};
  return cost;
}

/// Returns the mask u8 [queries, keys] that is 1 for the keys 0 to i of query i. It is written on the device,
/// so that a CUDA graph can capture it.
Tensor causal_mask(std::int64_t queries, std::int64_t keys, const DeviceContext& device) {
  const Tensor mask = Tensor::full({queries, keys}, 1, DType::u8, device);
  std::vector<kernels::Assignment> later;
  for (std::int64_t i = 0; i < std::min(queries, keys - 1); ++i)
    later.push_back({.to = mask.slice(i * keys + i + 1, {keys - i - 1}).view()});
  on(mask.stream(), [&](auto& s) { kernels::assign(s, later); });
  return mask;
}

Variable composed_attention(const Variable& q, const Variable& k, const Variable& v, double factor,
                            const AttentionOptions& options) {
  check(!options.causal || !options.mask.defined(), "{}: found a mask and causal, expected one of them",
        kName);
  Variable scores = matmul(scale(q, factor), transpose(k, -1, -2));
  const Shape shape = scores.shape();
  const auto check_fits = [&](std::string_view what, const Shape& given) {
    check(detail::broadcast_shape(kName, given, shape) == shape,
          "{}: {} {}, expected one that can be broadcast to {}", kName, what, given.text(), shape.text());
  };
  if (options.bias.defined()) {
    check_fits("bias", options.bias.shape());
    scores = scores + options.bias;
  }
  const Tensor mask = options.causal ? causal_mask(shape[-2], shape[-1], scores.context()) : options.mask;
  if (!mask.defined()) {
    const Variable p = softmax(scores);
    return matmul(options.dropout ? options.dropout(p) : p, v);
  }
  check_fits("mask", mask.shape());
  const auto number = [&](double value) {
    return Variable(Tensor::full({1}, value, q.dtype(), scores.context()));
  };
  Variable p = softmax(where(mask, scores, number(-std::numeric_limits<double>::infinity())));
  if (!options.causal) p = where(mask, p, number(0));  // replaces the NaN of queries without keys
  return matmul(options.dropout ? options.dropout(p) : p, v);
}

}  // namespace

Variable scaled_dot_product_attention(const Variable& q, const Variable& k, const Variable& v,
                                      const AttentionOptions& options) {
  check_arguments(q, k, v);
  const double factor = options.scale.value_or(1 / std::sqrt(static_cast<double>(q.shape()[-1])));
  const bool is_on_gpu = q.context().kind() == DeviceKind::cuda;
  const bool is_plain = !options.mask.defined() && !options.bias.defined() && !options.dropout;
  if (is_plain && is_on_gpu && is_half(q.dtype())) {  // as on the CPU, only the result is rounded
    const auto wide = [](const Variable& x) { return cast(x, DType::f32); };
    return cast(composed_attention(wide(q), wide(k), wide(v), factor, options), q.dtype());
  }
  if (!is_plain || is_on_gpu) return composed_attention(q, k, v, factor, options);
  const detail::OpScope scope(kName, q, k, v);
  std::vector<std::int64_t> sizes(q.shape().sizes().begin(), q.shape().sizes().end());
  sizes.back() = v.shape()[-1];
  const std::int64_t batch = detail::product_of(q.shape(), 0, q.shape().rank() - 2);
  const kernels::AttentionRule rule{.scale = factor, .causal = options.causal};
  const Tensor y = Tensor::empty(Shape(sizes), q.dtype(), detail::result_context(q, k, v));
  const Tensor log_sum_exp =
      Tensor::empty({batch, q.shape()[-2], 2}, is_half(q.dtype()) ? DType::f32 : q.dtype(), y.context());
  on(y.stream(), [&](CpuStream& s) {
    kernels::attention_forward(s, as_batch(q.value().view()), as_batch(k.value().view()),
                               as_batch(v.value().view()), rule, as_batch(y.view()), log_sum_exp.view());
  });
  return record(kName, y, {q, k, v},
                [q = q.value(), k = k.value(), v = v.value(), y, log_sum_exp, rule, batch](
                    const Tensor& dy, std::span<GradSlot> slots) {
                  if (batch == 0) {  // views of empty arrays may be null
                    for (GradSlot& slot : slots) slot.claim();
                    return;
                  }
                  // In this order: an array may be given twice, and then the later gradient accumulates.
                  const GradView dq = as_batch(slots[0].claim());
                  const GradView dk = as_batch(slots[1].claim());
                  const GradView dv = as_batch(slots[2].claim());
                  on(dy.stream(), [&](CpuStream& s) {
                    kernels::attention_backward(s, as_batch(dy.view()), as_batch(q.view()),
                                                as_batch(k.view()), as_batch(v.view()), as_batch(y.view()),
                                                log_sum_exp.view(), rule, dq, dk, dv);
                  });
                },
                cost_of_attention(q, k, v, batch, options.causal),
                {{"scale", rule.scale}, {"causal", rule.causal}});
}

}  // namespace convoy
