#include "convoy/engine/training/time_monitor.h"

#include <cstdio>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::training {

void TimeMonitor::on_step(const StepResult& result) {
  const Clock::time_point now = Clock::now();
  const std::chrono::duration<double> time = now - std::exchange(begin_, now);
  for (StepTimes* const times : {&total_, &epoch_}) {
    ++times->steps;
    times->samples += result.samples;
    times->seconds += time.count();
  }
}

void TimeMonitor::on_epoch(const EpochResult& result) {
  const StepTimes epoch = std::exchange(epoch_, {});
  if (!prints_) return;
  fmt::print("epoch {}: {:.2f} s, {:.2f} ms per step, {:.0f} samples/s\n", result.epoch + 1, epoch.seconds,
             epoch.step_ms(), epoch.samples_per_second());
  std::fflush(stdout);
}

}  // namespace convoy::training
