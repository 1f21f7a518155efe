// Learning-rate schedules: pure functions of the update step, so a resume needs no state and ranks cannot disagree.
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
  std::int64_t warmup = 0;  // steps that rise linearly to the peak, before the shape begins
  double final = 0;         // where cosine, linear and triangle end
};

Schedule constant(ScheduleOptions options);
/// peak to final in a straight line.
Schedule linear(ScheduleOptions options);
/// final + (peak - final) (1 + cos(pi t)) / 2 (Loshchilov and Hutter, arXiv:1608.03983), without restarts.
Schedule cosine(ScheduleOptions options);
/// Rises to the peak over the first `rise` of the steps, then falls to final (Smith, arXiv:1708.07120).
Schedule triangle(ScheduleOptions options, double rise = 0.3);
/// peak times factor at each milestone, given as fractions of the steps.
Schedule step_decay(ScheduleOptions options, std::vector<double> milestones = {0.5, 0.75}, double factor = 0.1);

/// By the name of a flag: constant, linear, cosine, step, triangle; UsageError for any other.
Schedule make_schedule(std::string_view name, ScheduleOptions options);

}  // namespace convoy
