#include "convoy/apps/train/report/time_left.h"

namespace convoy {

void TimeLeft::step(std::int64_t step, Clock::time_point now) {
  if (first_step_ < 0) {
    first_step_ = step;
    first_ = now;
  }
  last_step_ = step;
  last_ = now;
}

void TimeLeft::evaluated(Clock::time_point now) {
  evaluated_step_ = last_step_;
  if (last_step_ < 0) return;  // before the first step
  in_evaluations_ += now - last_;
  ++evaluations_;
  last_ = now;
}

std::int64_t TimeLeft::evaluations_left() const {
  const std::int64_t total = plan_.total_steps;
  const std::int64_t interval = plan_.steps_per_evaluation > 0 ? plan_.steps_per_evaluation : total;
  const std::int64_t all = (total + interval - 1) / interval;
  const bool is_end = last_step_ == total;
  const bool is_due = (is_end || last_step_ % interval == 0) && evaluated_step_ != last_step_;
  return all - (is_end ? all : last_step_ / interval) + (is_due ? 1 : 0);
}

std::optional<double> TimeLeft::seconds() const {
  if (last_step_ <= first_step_) return std::nullopt;
  const double per_step =
      (Seconds(last_ - first_) - in_evaluations_).count() / static_cast<double>(last_step_ - first_step_);
  const double per_evaluation = evaluations_ > 0 ? in_evaluations_.count() / static_cast<double>(evaluations_)
                                                 : per_step * plan_.steps_of_evaluation;
  return static_cast<double>(plan_.total_steps - last_step_) * per_step +
         (static_cast<double>(evaluations_left()) + plan_.final_evaluations) * per_evaluation;
}

}  // namespace convoy
