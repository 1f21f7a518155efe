// Lines about faults that tests have caused, from which scripts/reliability_table.py makes a table.
#pragma once

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

namespace convoy::testing {

/// Measures the seconds from a fault to its end, and prints them with what has happened.
class FaultRecord {
 public:
  /// Begins with the fault.
  explicit FaultRecord(std::string fault) : fault_(std::move(fault)) {}
  /// Ends the time.
  void stop() { end_ = Clock::now(); }
  /// Prints the line: call it after the checks of the test, only if they hold. `end` is how the fault ended,
  /// and `lost` what the training has lost. The time is until stop(), or until now.
  void print(const std::string& end, const std::string& lost) const {
    const std::chrono::duration<double> seconds = end_.value_or(Clock::now()) - begin_;
    std::printf("fault | %s | %.3f | %s | %s\n", fault_.c_str(), seconds.count(), end.c_str(), lost.c_str());
  }

 private:
  using Clock = std::chrono::steady_clock;

  std::string fault_;
  Clock::time_point begin_ = Clock::now();
  std::optional<Clock::time_point> end_;
};

inline const std::string kLostSteps = "the steps since the newest checkpoint";

}  // namespace convoy::testing
