// Lines about faults that tests have caused, from which scripts/reliability_table.py makes a table.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace convoy::testing {

/// Measures the seconds from a fault to its end, and prints them with what has happened.
class FaultRecord {
 public:
  /// Begins with the fault.
  explicit FaultRecord(std::string fault) : fault_(std::move(fault)) {}
  /// Prints the line. `end` is how the fault ended, and `lost` what the training has lost.
  void print(const std::string& end, const std::string& lost) const {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
    std::printf("fault | %s | %.3f | %s | %s\n", fault_.c_str(), seconds.count(), end.c_str(), lost.c_str());
  }

 private:
  std::string fault_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

inline const std::string kLostSteps = "the steps since the newest checkpoint";

}  // namespace convoy::testing
