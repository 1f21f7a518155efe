#include "convoy/comm/core/deadline.h"

#include <mutex>

namespace convoy::dist {

std::chrono::steady_clock::duration Suspension::observe(int more_observers) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kPause(1);  // no thread of a process that runs misses its turn for so long
  // A process is suspended as a whole, so this state belongs to it.
  static std::mutex mutex;
  static int observers = 0;
  static Clock::time_point seen;
  static Clock::duration total{};
  const std::lock_guard lock(mutex);
  const Clock::time_point now = Clock::now();
  if (observers > 0 && now - seen > kPause) total += now - seen;
  seen = now;
  observers += more_observers;
  return total;
}

}  // namespace convoy::dist
