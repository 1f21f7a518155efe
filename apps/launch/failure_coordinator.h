// Coordinated failure reports and shutdown of ranks that are threads of one process.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>

#include "apps/common/run_main.h"

namespace convoy {

/// Collects the failures and shutdowns of all ranks of a process and reports one failure for all of them.
/// Thread-safe.
class FailureCoordinator {
 public:
  explicit FailureCoordinator(const char* program) : program_(program) {}

  /// Records a failure of the calling rank. Prints the first one that is a root cause, which is any failure
  /// but the loss of a peer (ExitCode::peer), and no later one.
  void report_failure(ExitCode code, const std::string& what);
  /// Records that the calling rank has shut down, with or without a failure.
  void report_shutdown();

  /// Blocks until `ranks` ranks have shut down. Throws ReportedError if one of them has failed; if there was
  /// no root cause, prints the first failure before that. After the first failure, the ranks have
  /// `grace_seconds` to shut down. If one of them hangs longer, ends the process by _exit with the failure's
  /// code, because a single thread cannot be ended.
  void wait_for_shutdown(int ranks, double grace_seconds);

 private:
  /// Returns the failure to report, and prints it if it was not printed before. The caller holds `mutex_`.
  const ReportedError& reported_failure();

  const char* program_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int shutdown_count_ = 0;
  std::optional<ReportedError> root_cause_, first_failure_;
};

}  // namespace convoy
