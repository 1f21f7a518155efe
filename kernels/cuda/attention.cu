// kernels/attention.h on the GPU: batched GEMMs, with a kernel between them that has a team of threads per
// query. The scores are stored in the type in which kernels compute. So for half precision, all GEMMs are
// f32, and only results are rounded.
#include "convoy/kernels/attention.h"

#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "convoy/kernels/cuda/primitives/map.h"
#include "convoy/kernels/cuda/primitives/row_team.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/matmul.h"

namespace convoy::kernels {
namespace {

using cuda::compute_t, cuda::kGpuFullTypes, cuda::kGpuTypes, cuda::narrow, cuda::Scratch, cuda::widen;

/// The scores [B, T, S], and which of them a query uses.
template <class C>
struct ScoreRows {
  std::int64_t rows, queries, keys;
  C scale;
  bool causal;

  ScoreRows(const AttentionSizes& sizes, AttentionRule rule)
      : rows(sizes.batch * sizes.queries),
        queries(sizes.queries),
        keys(sizes.keys),
        scale(static_cast<C>(rule.scale)),
        causal(rule.causal) {}
  /// Returns how many keys the query of a row uses, from the first on.
  __device__ std::int64_t visible(std::int64_t row) const {
    const std::int64_t last = row % queries + 1;
    return causal && last < keys ? last : keys;
  }
};

/// Replaces each row of q k^T by the softmax of its scores, and 0 for keys that are not used.
template <class Team, class C>
__global__ void __launch_bounds__(Team::kBlock)
    attention_softmax_kernel(ScoreRows<C> layout, C* scores, C* log_sum_exp) {
  const std::int64_t row = Team::row();
  if (row >= layout.rows) return;  // true for all threads of a team
  C* const s = scores + row * layout.keys;
  const std::int64_t visible = layout.visible(row);
  const C scale = layout.scale;
  C largest = -std::numeric_limits<C>::infinity();
  cuda::for_each_of_row<Team>(s, visible, [&largest, scale](std::int64_t, C u) {
    largest = largest < scale * u ? scale * u : largest;
  });
  const C offset = Team::reduce(largest, cuda::Max{});
  C exps = 0;
  cuda::for_each_of_row<Team>(
      s, visible, [&exps, scale, offset](std::int64_t, C u) { exps += std::exp(scale * u - offset); });
  const C sum = Team::reduce(exps, cuda::Sum{});
  const C factor = 1 / sum;
  cuda::for_each_of_row<Team>(s, layout.keys, [=](std::int64_t key, C u) {
    s[key] = key < visible ? std::exp(scale * u - offset) * factor : C{0};
  });
  if (Team::rank() != 0) return;
  log_sum_exp[2 * row] = offset;
  log_sum_exp[2 * row + 1] = std::log(sum);
}

/// Replaces q k^T by the softmax p, and dp = dy v^T by scale p (dp - sum of dy y), the gradient of q k^T.
/// Both are 0 for keys that are not used. dy and y are [B, T, width].
template <class Team, class C>
__global__ void __launch_bounds__(Team::kBlock)
    attention_gradient_kernel(ScoreRows<C> layout, std::int64_t width, const C* dy, const C* y,
                              const C* log_sum_exp, C* scores, C* dp) {
  const std::int64_t row = Team::row();
  if (row >= layout.rows) return;
  C dot = 0;
  const C* const results = y + row * width;
  cuda::for_each_of_row<Team>(dy + row * width, width,
                              [&dot, results](std::int64_t i, C d) { dot += d * results[i]; });
  dot = Team::reduce(dot, cuda::Sum{});
  C* const p = scores + row * layout.keys;
  C* const gradients = dp + row * layout.keys;
  const std::int64_t visible = layout.visible(row);
  const C scale = layout.scale, largest = log_sum_exp[2 * row], log_sum = log_sum_exp[2 * row + 1];
  cuda::for_each_of_row<Team>(p, layout.keys, [=](std::int64_t key, C u) {
    const C probability = key < visible ? std::exp(scale * u - largest - log_sum) : C{0};
    p[key] = probability;
    gradients[key] = scale * probability * (gradients[key] - dot);
  });
}

/// Calls launch_rows(team, blocks) for a team per row of scores.
template <class F>
void for_rows(std::int64_t rows, std::int64_t keys, F launch_rows) {
  cuda::dispatch_team(keys,
                      [&](auto team) { launch_rows(team, blocks_for(rows, decltype(team)::kRowsOfBlock)); });
}

/// An uninitialized array of compute type C, for intermediate results.
template <class C>
struct Temporary {
  Temporary(CudaStream& stream, const Shape& shape)
      : memory(stream, static_cast<std::size_t>(shape.numel()) * sizeof(C)),
        view{.data = memory.template as<void>(), .shape = shape, .dtype = dtype_of<C>} {}
  Scratch memory;
  View view;
};

/// Arguments of half precision in f32. Arguments of other types are used as they are.
class Widened {
 public:
  explicit Widened(CudaStream& stream) : stream_(stream) {}
  ConstView operator()(const ConstView& x) {
    if (!is_half(x.dtype)) return x;
    auto& copy = copies_.at(used_++).emplace(stream_, x.shape);
    cast(stream_, x, copy.view);
    return copy.view;
  }

 private:
  CudaStream& stream_;
  std::array<std::optional<Temporary<float>>, 5> copies_;
  std::size_t used_ = 0;
};

struct Round {
  __device__ float operator()(float x) const { return x; }
};

/// Stores the f32 array x in y, of half precision: y = x, or y += x.
void store_rounded(CudaStream& stream, const ConstView& x, const GradView& y) {
  dispatch(ElementTypes<float16, bfloat16>{"a GPU"}, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const to = y.as<T>();
    if (y.mode == GradMode::overwrite) {
      cuda::launch_map(stream, y.numel(), cuda::Overwrite<T, Round>{}, to, x.as<float>());
    } else {
      cuda::launch_map(stream, y.numel(), cuda::Accumulate<T, Round>{}, to, static_cast<const T*>(to),
                       x.as<float>());
    }
  });
}

/// Computes y = op(a) op(b), or +=, from factors in the compute type.
void multiply(CudaStream& stream, const ConstView& a, const ConstView& b, const GradView& y,
              MatmulOptions options = {}) {
  if (!y.wanted()) return;
  if (!is_half(y.dtype)) return matmul(stream, a, b, y, options);
  const Temporary<float> result(stream, y.shape);
  matmul(stream, a, b, GradView(result.view), options);
  store_rounded(stream, result.view, y);
}

}  // namespace

void attention_forward(CudaStream& stream, ConstView q, ConstView k, ConstView v, AttentionRule rule, View y,
                       View log_sum_exp) {
  const AttentionSizes sizes(q.shape, v.shape);
  if (log_sum_exp.numel() == 0) return;
  Widened widened_of(stream);
  const ConstView queries = widened_of(q), keys = widened_of(k), values = widened_of(v);
  dispatch(kGpuFullTypes, log_sum_exp.dtype, [&](auto zero) {
    using C = decltype(zero);
    const Temporary<C> scores(stream, {sizes.batch, sizes.queries, sizes.keys});
    matmul(stream, queries, keys, GradView(scores.view), {.transpose_b = true});
    const ScoreRows<C> layout(sizes, rule);
    for_rows(layout.rows, sizes.keys, [&](auto team, unsigned blocks) {
      using Team = decltype(team);
      launch(stream, blocks, Team::kBlock, Team::kSharedBytes, attention_softmax_kernel<Team, C>, layout,
             scores.view.template as<C>(), log_sum_exp.as<C>());
    });
    multiply(stream, scores.view, values, GradView(y));
  });
}

void attention_backward(CudaStream& stream, ConstView dy, ConstView q, ConstView k, ConstView v, ConstView y,
                        ConstView log_sum_exp, AttentionRule rule, GradView dq, GradView dk, GradView dv) {
  const AttentionSizes sizes(q.shape, v.shape);
  Widened widened_of(stream);
  const ConstView gradient = widened_of(dy), queries = widened_of(q), keys = widened_of(k),
                  values = widened_of(v), results = widened_of(y);
  dispatch(kGpuFullTypes, log_sum_exp.dtype, [&](auto zero) {
    using C = decltype(zero);
    const Shape shape{sizes.batch, sizes.queries, sizes.keys};
    const Temporary<C> p(stream, shape), ds(stream, shape);
    matmul(stream, queries, keys, GradView(p.view), {.transpose_b = true});
    matmul(stream, gradient, values, GradView(ds.view), {.transpose_b = true});
    const ScoreRows<C> layout(sizes, rule);
    if (layout.rows > 0)
      for_rows(layout.rows, sizes.keys, [&](auto team, unsigned blocks) {
        using Team = decltype(team);
        launch(stream, blocks, Team::kBlock, Team::kSharedBytes, attention_gradient_kernel<Team, C>, layout,
               sizes.width, gradient.as<C>(), results.as<C>(), log_sum_exp.as<C>(), p.view.template as<C>(),
               ds.view.template as<C>());
      });
    multiply(stream, ds.view, keys, dq);
    multiply(stream, ds.view, queries, dk, {.transpose_a = true});
    multiply(stream, p.view, gradient, dv, {.transpose_a = true});
  });
}

}  // namespace convoy::kernels
