// Learning-rate schedules: pure functions of the update step, so a resume needs no state and ranks cannot
// disagree.
//
// The exact points, for S steps with W of warmup, steps counted from 0:
//   warmup   rate(s) = peak (s + 1) / (W + 1) for s < W: the first step is not wasted on a rate of 0, and the
//   peak is
//            reached once, at s = W, where the shape begins.
//   shape    a function of t = (s - W) / (S - W): t = 0 is the peak. `final` belongs to t = 1, which is step
//   S, the one
//            after the last, as in PyTorch's CosineAnnealingLR(T_max = S): so the last step, too, learns
//            something where final = 0. Steps from S on keep the rate of t = 1.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace convoy {

/// rate(step), step from 0.
using Schedule = std::function<double(std::int64_t step)>;

struct ScheduleOptions {
  double peak = 0.1;
  std::int64_t steps = 1;   // of the whole training
  std::int64_t warmup = 0;  // steps that rise linearly to the peak, before the shape begins; below `steps`
  double final = 0;         // where cosine, linear and triangle end; the others refuse one
};

// All throw UsageError for options that make no sense, or that the shape has no use for.

Schedule constant(ScheduleOptions options);
/// peak to final in a straight line.
Schedule linear(ScheduleOptions options);
/// final + (peak - final) (1 + cos(pi t)) / 2 (Loshchilov and Hutter, arXiv:1608.03983), without restarts.
Schedule cosine(ScheduleOptions options);
/// Rises to the peak over the first R = round(rise S) steps, as a warmup does, then falls to final in a
/// straight line (Smith, arXiv:1708.07120). Refuses a warmup beside its own.
Schedule triangle(ScheduleOptions options, double rise = 0.3);
/// peak times factor at each milestone, given as fractions of the steps: from step round(milestone S) on.
Schedule step_decay(ScheduleOptions options, std::vector<double> milestones = {0.5, 0.75},
                    double factor = 0.1);

/// By the name of a flag: constant, linear, cosine, step, triangle; UsageError for any other.
Schedule make_schedule(std::string_view name, ScheduleOptions options);

}  // namespace convoy
