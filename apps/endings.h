// How ranks end that are threads of one process: together, and with one word for all.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "apps/run_main.h"

namespace convoy {

class Endings {
 public:
  explicit Endings(const char* program) : program_(program) {}

  // Of any rank, from any thread.

  /// Prints the cause when it comes, which is the first failure that is more than another rank's absence, and
  /// nothing that follows from it.
  void add_failure(ExitCode code, const std::string& what);
  /// A rank has ended, well or not.
  void add_end();

  /// Until all of so many ranks have ended. Throws ReportedError if one has failed; where nobody knew a cause
  /// the first failure is printed now. Once one has failed the others have `grace_seconds` to end, too. A
  /// thread that hangs cannot be ended but with its process: _exit, with the failure's code.
  void wait(int ranks, double grace_seconds);

 private:
  /// The failure, which is printed by now.
  const ReportedError& told();

  const char* program_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int ended_ = 0;
  std::optional<ReportedError> cause_, first_;
};

}  // namespace convoy
