#include "convoy/engine/training/time_monitor.h"

#include <cstdio>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::training {

void StepTimes::add(const StepTimes& more) {
  steps += more.steps;
  samples += more.samples;
  seconds += more.seconds;
}

void TimeMonitor::add(const StepTimes& times) {
  total_.add(times);
  epoch_.add(times);
}

void TimeMonitor::on_step(const StepResult& result) {
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> time = now - std::exchange(begin_, now);
  add({.steps = 1, .samples = result.samples, .seconds = time.count()});
}

void TimeMonitor::on_epoch(const EpochResult& result) {
  const StepTimes epoch = std::exchange(epoch_, {});
  if (!prints_) return;
  fmt::print("epoch {}: {:.2f} s, {:.2f} ms per step, {:.0f} samples/s\n", result.epoch + 1, epoch.seconds,
             epoch.step_ms(), epoch.samples_per_second());
  std::fflush(stdout);
}

void TimeMonitor::on_evaluation(const EvaluationResult& /*result*/) { begin_ = Clock::now(); }

}  // namespace convoy::training
