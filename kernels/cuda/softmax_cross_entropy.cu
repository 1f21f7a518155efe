// kernels/softmax_cross_entropy.h on the GPU. A team of threads processes a row. It finds the largest logit,
// which is subtracted so that exp cannot overflow, and reads the row again for the sum. The second read is
// served by the cache: a row of 1000 floats has 4 KB.
#include "convoy/kernels/softmax_cross_entropy.h"

#include <cmath>

#include "convoy/kernels/cuda/primitives/row_team.h"

namespace convoy::kernels {
namespace {

using cuda::compute_t, cuda::kGpuTypes, cuda::dispatch_team, cuda::first_largest, cuda::for_each_of_row,
    cuda::narrow, cuda::widen;

/// The smoothed target: 1 - s + s / C for the label, s / C for every other class.
template <class C>
struct Target {
  C label_weight, class_weight;

  Target(double smoothing, std::int64_t classes)
      : label_weight(static_cast<C>(1 - smoothing)),
        class_weight(static_cast<C>(smoothing / static_cast<double>(classes))) {}
};

template <class Team, class T, class C>
__global__ void __launch_bounds__(Team::kBlock)
    forward_kernel(std::int64_t rows, std::int64_t classes, const T* logits, const std::int32_t* labels,
                   Target<C> target, C* losses, C* log_sum_exp, std::int32_t* correct) {
  const std::int64_t row = Team::row();
  if (row >= rows) return;  // true for all threads of a team
  const T* const x = logits + row * classes;
  const auto [offset, largest] = first_largest<Team>(x, classes);
  C exps = 0, shifted = 0;  // sums of exp(x - offset) and of x - offset
  for_each_of_row<Team>(x, classes, [&exps, &shifted, offset = offset](std::int64_t, C u) {
    exps += std::exp(u - offset);
    shifted += u - offset;
  });
  exps = Team::reduce(exps, cuda::Sum{});
  // Without smoothing, a logit of -infinity must not affect the loss.
  shifted = target.class_weight > 0 ? target.class_weight * Team::reduce(shifted, cuda::Sum{}) : C{0};
  if (Team::rank() != 0) return;
  const std::int32_t label = labels[row];
  const C log_sum = std::log(exps);
  losses[row] = log_sum - (target.label_weight * (widen(x[label]) - offset) + shifted);
  log_sum_exp[row] = offset + log_sum;
  correct[row] = largest == label ? 1 : 0;
}

template <class Team, class T, class C>
__global__ void __launch_bounds__(Team::kBlock)
    backward_kernel(std::int64_t rows, std::int64_t classes, const C* dloss, const T* logits,
                    const std::int32_t* labels, const C* log_sum_exp, Target<C> target, GradMode mode,
                    T* dlogits) {
  const std::int64_t row = Team::row();
  if (row >= rows) return;
  T* const dx = dlogits + row * classes;
  const C scale = *dloss;
  const C offset = log_sum_exp[row];
  const std::int32_t label = labels[row];
  for_each_of_row<Team>(logits + row * classes, classes, [=](std::int64_t c, C u) {
    const C wanted = target.class_weight + (c == label ? target.label_weight : C{0});
    const C gradient = scale * (std::exp(u - offset) - wanted);
    dx[c] = narrow<T>(mode == GradMode::accumulate ? widen(dx[c]) + gradient : gradient);
  });
}

}  // namespace

void softmax_cross_entropy_forward(CudaStream& stream, ConstView logits, ConstView labels, double smoothing,
                                   View losses, View log_sum_exp, View correct) {
  const std::int64_t rows = logits.shape[0];
  const std::int64_t classes = logits.shape[1];
  if (rows == 0) return;
  dispatch(kGpuTypes, logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    dispatch_team(classes, [&](auto team) {
      using Team = decltype(team);
      launch(stream, blocks_for(rows, Team::kRowsOfBlock), Team::kBlock, Team::kSharedBytes,
             forward_kernel<Team, T, C>, rows, classes, logits.as<T>(), labels.as<std::int32_t>(),
             Target<C>(smoothing, classes), losses.as<C>(), log_sum_exp.as<C>(), correct.as<std::int32_t>());
    });
  });
}

void softmax_cross_entropy_backward(CudaStream& stream, ConstView dloss, ConstView logits, ConstView labels,
                                    ConstView log_sum_exp, double smoothing, GradView dlogits) {
  const std::int64_t rows = logits.shape[0];
  const std::int64_t classes = logits.shape[1];
  if (!dlogits.wanted() || rows == 0) return;
  dispatch(kGpuTypes, logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    dispatch_team(classes, [&](auto team) {
      using Team = decltype(team);
      launch(stream, blocks_for(rows, Team::kRowsOfBlock), Team::kBlock, 0, backward_kernel<Team, T, C>, rows,
             classes, dloss.as<C>(), logits.as<T>(), labels.as<std::int32_t>(), log_sum_exp.as<C>(),
             Target<C>(smoothing, classes), dlogits.mode, dlogits.as<T>());
    });
  });
}

}  // namespace convoy::kernels
