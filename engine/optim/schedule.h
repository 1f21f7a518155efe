// Learning-rate schedules: pure functions of the step, which need no state in checkpoints and agree on all
// ranks. Schedules and the functions that make them are thread-safe.
//
// For S steps with W steps of warmup, counted from 0:
//   warmup   rate(s) = peak (s + 1) / (W + 1) for s < W. The first step has a rate above 0. The peak is
//            reached once, at s = W, where the shape begins.
//   shape    A function of t = (s - W) / (S - W), with the peak at t = 0. `final` is the rate at t = 1,
//            which is step S, one after the last, as in PyTorch's CosineAnnealingLR(T_max = S). The last
//            step therefore has a rate above 0 even if final = 0. Steps from S on keep the rate of t = 1.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace convoy::optim {

/// A function that returns the learning rate of a step; steps count from 0.
using Schedule = std::function<double(std::int64_t step)>;

/// Options of all schedules. The functions that take them throw UsageError for invalid options, and for
/// options that the shape does not have.
struct ScheduleOptions {
  double peak = 0.1;        // the highest rate; at least 0
  std::int64_t steps = 1;   // number of steps of the whole training
  std::int64_t warmup = 0;  // steps of linear rise to the peak; less than `steps`
  /// The last rate of cosine, linear and polynomial; must be 0 for the others.
  double final = 0;
};

/// Returns a schedule that stays at the peak.
Schedule constant(ScheduleOptions options);
/// Returns a schedule that falls linearly from peak to final.
Schedule linear(ScheduleOptions options);
/// Returns the schedule final + (peak - final) (1 + cos(pi t)) / 2 (Loshchilov and Hutter, arXiv:1608.03983). With
/// several cycles, it restarts at the peak: t goes from 0 to 1 in each cycle, which is `growth` times as long as the
/// one before. Throws UsageError unless cycles >= 1 and growth >= 1.
Schedule cosine(ScheduleOptions options, int cycles = 1, double growth = 1);
/// Returns a schedule that multiplies the rate by `factor` at each milestone. Milestones are fractions of the
/// steps, between 0 and 1: one takes effect from step round(milestone S) on. The factor must be positive.
Schedule step_decay(ScheduleOptions options, std::vector<double> milestones = {0.5, 0.75},
                    double factor = 0.1);

/// Returns a schedule that multiplies the rate by `factor` after every `period` steps from the peak on, as
/// PyTorch's ExponentialLR that is stepped every `period` steps. Both must be positive.
Schedule exponential(ScheduleOptions options, double factor = 0.95, std::int64_t period = 1);
/// Returns the schedule final + (peak - final) (1 - t)^power, as PyTorch's PolynomialLR. The power must be
/// positive.
Schedule polynomial(ScheduleOptions options, double power = 0.9);
/// Returns PyTorch's OneCycleLR with its default shape (Smith and Topin, arXiv:1708.07120): the rate rises
/// from peak / 25 to the peak in the first 30 % of the steps, and falls to peak / 250,000 at the last one,
/// along halves of a cosine each. options.warmup must be 0.
Schedule one_cycle(ScheduleOptions options);

}  // namespace convoy::optim
