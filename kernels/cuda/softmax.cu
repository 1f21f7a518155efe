// kernels/softmax.h on the GPU. A team of threads processes a row and reads it several times; after the first
// read, the cache serves rows of ordinary length.
#include "convoy/kernels/softmax.h"

#include <cmath>

#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "convoy/kernels/cuda/primitives/row_team.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/shared/cross_entropy_targets.h"

namespace convoy::kernels {
namespace {

using cuda::compute_t, cuda::first_largest, cuda::for_each_of_row, cuda::narrow, cuda::widen;

/// Computes softmax, or log-softmax if kLog.
template <bool kLog, class Team, class T>
__global__ void __launch_bounds__(Team::kBlock)
    softmax_kernel(std::int64_t rows, std::int64_t columns, const T* x, T* y) {
  using C = compute_t<T>;
  const std::int64_t row = Team::row();
  if (row >= rows) return;  // true for all threads of a team
  const T* const from = x + row * columns;
  T* const to = y + row * columns;
  const C largest = first_largest<Team>(from, columns).value;
  C exps = 0;
  for_each_of_row<Team>(from, columns,
                        [&exps, largest](std::int64_t, C u) { exps += std::exp(u - largest); });
  exps = Team::reduce(exps, cuda::Sum{});
  const C factor = kLog ? std::log(exps) : 1 / exps;
  for_each_of_row<Team>(from, columns, [=](std::int64_t c, C u) {
    to[c] = narrow<T>(kLog ? u - largest - factor : std::exp(u - largest) * factor);
  });
}

/// Computes the gradient of softmax, or of log-softmax if kLog.
template <bool kLog, class Team, class T>
__global__ void __launch_bounds__(Team::kBlock)
    backward_kernel(std::int64_t rows, std::int64_t columns, GradMode mode, const T* dy, const T* y, T* dx) {
  using C = compute_t<T>;
  const std::int64_t row = Team::row();
  if (row >= rows) return;
  const T* const v = y + row * columns;
  T* const to = dx + row * columns;
  C sum = 0;
  for_each_of_row<Team>(dy + row * columns, columns,
                        [&sum, v](std::int64_t c, C d) { sum += kLog ? d : d * widen(v[c]); });
  sum = Team::reduce(sum, cuda::Sum{});
  for_each_of_row<Team>(dy + row * columns, columns, [=](std::int64_t c, C d) {
    const C out = widen(v[c]);
    const C gradient = kLog ? d - std::exp(out) * sum : out * (d - sum);
    to[c] = narrow<T>(mode == GradMode::accumulate ? widen(to[c]) + gradient : gradient);
  });
}

template <bool kLog>
void forward(CudaStream& stream, const ConstView& x, const View& y) {
  const std::int64_t rows = x.shape[0], columns = x.shape[1];
  if (rows == 0) return;
  dispatch(cuda::kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel_of = [](auto team) { return softmax_kernel<kLog, decltype(team), T>; };
    cuda::launch_teams(stream, rows, columns, kernel_of, rows, columns, x.as<T>(), y.as<T>());
  });
}

template <bool kLog>
void backward(CudaStream& stream, const ConstView& dy, const ConstView& y, const GradView& dx) {
  const std::int64_t rows = y.shape[0], columns = y.shape[1];
  if (!dx.wanted() || rows == 0) return;
  dispatch(cuda::kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel_of = [](auto team) { return backward_kernel<kLog, decltype(team), T>; };
    cuda::launch_teams(stream, rows, columns, kernel_of, rows, columns, dx.mode, dy.as<T>(), y.as<T>(),
                       dx.as<T>());
  });
}

}  // namespace

void softmax(CudaStream& stream, ConstView x, View y) { forward<false>(stream, x, y); }

void softmax_backward(CudaStream& stream, ConstView dy, ConstView y, GradView dx) {
  backward<false>(stream, dy, y, dx);
}

void log_softmax(CudaStream& stream, ConstView x, View y) { forward<true>(stream, x, y); }

void log_softmax_backward(CudaStream& stream, ConstView dy, ConstView y, GradView dx) {
  backward<true>(stream, dy, y, dx);
}

// softmax_cross_entropy on the GPU. A team of threads processes a row. It finds the largest logit,
// which is subtracted so that exp cannot overflow, and reads the row again for the sum. The second read is
// served by the cache: a row of 1000 floats has 4 KB. Short rows take another way forward: one thread holds a
// whole row in registers, and one block processes all rows and adds their losses.

namespace {

using cuda::BlockPartials, cuda::compute_t, cuda::kGpuTypes, cuda::first_largest, cuda::launch_teams,
    cuda::for_each_of_row, cuda::narrow, cuda::widen;

constexpr int kTotalBlock = 256;  // the block of sum(), so that the losses are added in the same order

/// What the total of all rows is computed from.
template <class C>
struct RowResult {
  C loss;
  int is_correct;  // 1 or 0
};

/// The arguments of a forward kernel.
template <class T, class C>
struct Forward {
  std::int64_t rows;
  const T* logits;
  CrossEntropyTargets<C> target;
  C *losses, *log_sum_exp;
  std::int32_t* correct;
  C* row_weights;  // null if not wanted

  /// Stores and returns the results of a row. `largest` is the first of the largest logits, `exps` the sum of
  /// exp(x - largest.value), `expected` the sum of target (x - offset(largest)) and `sum` that of the
  /// targets.
  __device__ RowResult<C> finish(std::int64_t row, std::int32_t label, cuda::FirstLargest<C> largest, C exps,
                                 C expected, C sum) const {
    // An infinite sum makes the softmax 0 in the gradient of log-probabilities.
    const C log_sum = target.of_log_p ? std::numeric_limits<C>::infinity() : std::log(exps);
    const bool is_ignored = target.ignores(row);
    const C loss = is_ignored ? C{0} : (target.of_log_p ? C{0} : sum * log_sum) - expected;
    losses[row] = loss;
    log_sum_exp[2 * row] = offset(largest);
    log_sum_exp[2 * row + 1] = log_sum;
    const int is_correct = largest.index == label && !is_ignored ? 1 : 0;
    correct[row] = is_correct;
    if (row_weights != nullptr) row_weights[row] = target.weight(row);
    return {loss, is_correct};
  }

  /// Returns what is subtracted from the logits: the largest, or 0 of log-probabilities.
  __device__ C offset(cuda::FirstLargest<C> largest) const { return target.of_log_p ? C{0} : largest.value; }

  /// As finish(), for plain targets and `shifted`, the sum of x - largest.value.
  __device__ RowResult<C> finish_plain(std::int64_t row, cuda::FirstLargest<C> largest, C exps,
                                       C shifted) const {
    const std::int32_t label = target.labels[row];
    // Without smoothing, a logit of -infinity must not affect the loss.
    C expected = target.class_part > 0 ? target.class_part * shifted : C{0};
    if (!target.ignores(row))
      expected += target.own_part * (widen(logits[row * target.classes + label]) - offset(largest));
    return finish(row, label, largest, exps, expected, C{1});
  }
};

/// kPlain: the targets are plain, which needs neither a load per element nor the sum of the targets.
template <bool kPlain, class Team, class T, class C>
__global__ void __launch_bounds__(Team::kBlock) forward_kernel(const Forward<T, C> forward) {
  const std::int64_t row = Team::row();
  if (row >= forward.rows) return;  // true for all threads of a team
  const CrossEntropyTargets<C>& target = forward.target;
  const T* const x = forward.logits + row * target.classes;
  const auto largest = first_largest<Team>(x, target.classes);
  C exps = 0, shifted = 0, sum = 0;
  for_each_of_row<Team>(x, target.classes, [&, offset = forward.offset(largest)](std::int64_t c, C u) {
    exps += std::exp(u - offset);
    const C wanted = kPlain ? C{1} : target(row, c);
    if (kPlain || wanted != 0) shifted += wanted * (u - offset);
    if (!kPlain) sum += wanted;
  });
  exps = Team::reduce(exps, cuda::Sum{});
  if (!kPlain || target.class_part > 0) shifted = Team::reduce(shifted, cuda::Sum{});
  if constexpr (kPlain) {
    if (Team::rank() == 0) forward.finish_plain(row, largest, exps, shifted);
  } else {
    sum = Team::reduce(sum, cuda::Sum{});
    const std::int32_t label =
        target.labels != nullptr
            ? target.labels[row]
            : first_largest<Team>(target.probabilities + row * target.classes, target.classes).index;
    if (Team::rank() == 0) forward.finish(row, label, largest, exps, shifted, sum);
  }
}

/// Computes *count = the sum of correct [rows], in one block.
template <class C>
__global__ void __launch_bounds__(kTotalBlock)
    count_kernel(std::int64_t rows, const std::int32_t* correct, C* count) {
  std::int64_t sum = 0;
#pragma unroll 4
  for (std::int64_t row = threadIdx.x; row < rows; row += kTotalBlock) sum += correct[row];
  sum = cuda::block_reduce<kTotalBlock>(sum, cuda::Sum{},
                                        cuda::shared_memory<BlockPartials<std::int64_t, kTotalBlock>>());
  if (threadIdx.x == 0) *count = static_cast<C>(sum);
}

// Short rows. One launch instead of five: the losses, the two of sum(), the scale, and the count.

constexpr int kShortRow = 16;  // maximum number of classes; a thread holds three such arrays in registers
constexpr int kMaxTotalRows = 4 * kTotalBlock;  // a fifth row per thread would take longer than a launch

/// Returns the sum of the values in the order of warp_reduce(), as if each of the first lanes had one.
template <class C>
__device__ C sum_as_warp(C (&values)[kShortRow]) {
#pragma unroll
  for (int half = kShortRow / 2; half > 0; half /= 2)
#pragma unroll
    for (int c = 0; c < half; ++c) values[c] += values[c + half];
  return values[0];
}

/// Computes a row in this thread, with the same roundings as forward_kernel.
template <class T, class C>
__device__ RowResult<C> result_of_short_row(const Forward<T, C>& forward, int row) {
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  const auto classes = static_cast<int>(forward.target.classes);
  C x[kShortRow], exps[kShortRow];
#pragma unroll
  for (int c = 0; c < kShortRow; ++c)
    x[c] = c < classes ? widen(forward.logits[row * classes + c]) : -kInfinity;
  cuda::FirstLargest<C> largest{x[0] != x[0] ? kInfinity : x[0], 0};
#pragma unroll
  for (int c = 1; c < kShortRow; ++c)
    if (largest.value < x[c]) largest = {x[c], c};
#pragma unroll
  for (int c = 0; c < kShortRow; ++c) {
    x[c] = c < classes ? x[c] - largest.value : C{0};
    exps[c] = c < classes ? std::exp(x[c]) : C{0};
  }
  return forward.finish_plain(row, largest, sum_as_warp(exps), sum_as_warp(x));
}

template <class C>
struct TotalShared {
  alignas(16) C losses[kMaxTotalRows];
  BlockPartials<double, kTotalBlock> partials;
  BlockPartials<int, kTotalBlock> counts;
};

/// Computes all rows in one block, *total = scale times the sum of their losses, and the number of correct
/// rows if correct_count is not null.
template <class T, class C>
__global__ void __launch_bounds__(kTotalBlock)
    forward_total_kernel(const Forward<T, C> forward, C scale, C* total, C* correct_count) {
  auto& shared = cuda::shared_memory<TotalShared<C>>();
  const auto rows = static_cast<int>(forward.rows);
  int correct = 0;
  for (int row = static_cast<int>(threadIdx.x); row < rows; row += kTotalBlock) {
    const RowResult<C> result = result_of_short_row(forward, row);
    shared.losses[row] = result.loss;
    correct += result.is_correct;
  }
  correct =
      cuda::block_reduce<kTotalBlock>(correct, cuda::Sum{}, shared.counts);  // waits for the losses, too
  const double sum = cuda::block_sum<kTotalBlock>(
      shared.losses, rows, [](auto loss, auto& of) { of.add(loss); }, shared.partials);
  if (threadIdx.x > 0) return;
  *total = scale * static_cast<C>(sum);
  if (correct_count != nullptr) *correct_count = static_cast<C>(correct);
}

template <bool kPlain, class Team, class T, class C>
__global__ void __launch_bounds__(Team::kBlock)
    backward_kernel(std::int64_t rows, const C* dloss, bool is_of_rows, const T* logits, const C* log_sum_exp,
                    const CrossEntropyTargets<C> target, C factor, GradMode mode, T* dlogits) {
  const std::int64_t row = Team::row();
  if (row >= rows) return;
  const T* const x = logits + row * target.classes;
  T* const dx = dlogits + row * target.classes;
  const C scale = factor * dloss[is_of_rows ? row : 0];
  const C largest = log_sum_exp[2 * row], log_sum = log_sum_exp[2 * row + 1];
  const std::int32_t label = kPlain || target.labels != nullptr ? target.labels[row] : 0;
  const bool is_ignored = (kPlain || target.labels != nullptr) && label == target.ignored;
  C sum = kPlain ? 1 : 0;
  if constexpr (!kPlain) {
    for_each_of_row<Team>(x, target.classes, [&](std::int64_t c, C) { sum += target(row, c); });
    sum = Team::reduce(sum, cuda::Sum{});
  }
  for_each_of_row<Team>(x, target.classes, [=](std::int64_t c, C u) {
    const C wanted = kPlain ? target.class_part + (c == label ? target.own_part : C{0}) : target(row, c);
    const C gradient = is_ignored ? C{0} : scale * (std::exp(u - largest - log_sum) * sum - wanted);
    dx[c] = narrow<T>(mode == GradMode::accumulate ? widen(dx[c]) + gradient : gradient);
  });
}

}  // namespace

void softmax_cross_entropy_forward(CudaStream& stream, ConstView logits, const CrossEntropyTarget& target,
                                   View losses, View log_sum_exp, View correct, View total,
                                   View correct_count, View row_weights) {
  const std::int64_t rows = logits.shape[0];
  const std::int64_t classes = logits.shape[1];
  const bool in_one_block = 0 < rows && rows <= kMaxTotalRows && classes <= kShortRow &&
                            target.of_rows.dtype == DType::i32 && target.class_weights.data == nullptr;
  if (rows > 0)
    dispatch(kGpuTypes, logits.dtype, [&](auto zero) {
      using T = decltype(zero);
      using C = compute_t<T>;
      const Forward<T, C> forward{.rows = rows,
                                  .logits = logits.as<T>(),
                                  .target = CrossEntropyTargets<C>(target, classes),
                                  .losses = losses.as<C>(),
                                  .log_sum_exp = log_sum_exp.as<C>(),
                                  .correct = correct.as<std::int32_t>(),
                                  .row_weights = row_weights.as<C>()};
      if (in_one_block)
        return launch(stream, 1, kTotalBlock, sizeof(TotalShared<C>), forward_total_kernel<T, C>, forward,
                      static_cast<C>(target.scale), total.as<C>(), correct_count.as<C>());
      const auto kernel_of = [&](auto team) {
        using Team = decltype(team);
        return forward.target.are_plain() ? forward_kernel<true, Team, T, C>
                                          : forward_kernel<false, Team, T, C>;
      };
      launch_teams(stream, rows, classes, kernel_of, forward);
    });
  if (in_one_block) return;
  sum(stream, losses, GradView(total));
  if (target.scale != 1) scale(stream, total, target.scale, GradView(total));
  if (correct_count.data == nullptr) return;
  dispatch(kGpuTypes, total.dtype, [&](auto zero) {
    using C = compute_t<decltype(zero)>;
    launch(stream, 1, kTotalBlock, sizeof(BlockPartials<std::int64_t, kTotalBlock>), count_kernel<C>, rows,
           correct.as<std::int32_t>(), correct_count.as<C>());
  });
}

void softmax_cross_entropy_backward(CudaStream& stream, ConstView dloss, ConstView logits,
                                    const CrossEntropyTarget& target, ConstView log_sum_exp,
                                    GradView dlogits) {
  const std::int64_t rows = logits.shape[0];
  const std::int64_t classes = logits.shape[1];
  if (!dlogits.wanted() || rows == 0) return;
  dispatch(kGpuTypes, logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const CrossEntropyTargets<C> targets(target, classes);
    const auto kernel_of = [&](auto team) {
      using Team = decltype(team);
      return targets.are_plain() ? backward_kernel<true, Team, T, C> : backward_kernel<false, Team, T, C>;
    };
    launch_teams(stream, rows, classes, kernel_of, rows, dloss.as<C>(), dloss.numel() > 1, logits.as<T>(),
                 log_sum_exp.as<C>(), targets, static_cast<C>(target.scale), dlogits.mode, dlogits.as<T>());
  });
}

}  // namespace convoy::kernels
