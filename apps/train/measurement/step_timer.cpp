#include "convoy/apps/train/measurement/step_timer.h"

namespace convoy {

StepTimer::Mark StepTimer::mark() const {
  auto made = std::make_shared<Event>(Event::timed(device_.stream()));
  made->record();
  return made;
}

void StepTimer::run() {
  if (!begin_) begin_ = mark();
}

void StepTimer::pause() {
  if (!begin_) return;
  done_.emplace_back(std::exchange(begin_, nullptr), mark());
}

StepTimer::Window StepTimer::take() {
  if (begin_) {
    const Mark now = mark();
    done_.emplace_back(std::exchange(begin_, now), now);
  }
  return std::exchange(done_, {});
}

double StepTimer::seconds(const Window& window) {
  double milliseconds = 0;
  for (const auto& [begin, end] : window) milliseconds += elapsed_ms(*begin, *end);
  return milliseconds * 1e-3;
}

}  // namespace convoy
