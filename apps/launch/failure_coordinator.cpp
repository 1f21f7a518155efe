#include "apps/launch/failure_coordinator.h"

#include <unistd.h>

#include <chrono>

namespace convoy {

void FailureCoordinator::report_failure(ExitCode code, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!first_failure_) first_failure_.emplace(code, what);
  changed_.notify_all();
  if (root_cause_ || code == ExitCode::peer) return;
  root_cause_.emplace(code, what);
  print_error(program_, what);
}

void FailureCoordinator::report_shutdown() {
  const std::lock_guard lock(mutex_);
  ++shutdown_count_;
  changed_.notify_all();
}

void FailureCoordinator::wait_for_shutdown(int ranks, double grace_seconds) {
  std::unique_lock lock(mutex_);
  const auto all_shut_down = [&] { return shutdown_count_ == ranks; };
  changed_.wait(lock, [&] { return all_shut_down() || first_failure_; });
  if (!first_failure_) return;
  if (!changed_.wait_for(lock, std::chrono::duration<double>(grace_seconds), all_shut_down))
    _exit(static_cast<int>(reported_failure().code()));
  throw ReportedError(reported_failure());
}

const ReportedError& FailureCoordinator::reported_failure() {
  if (root_cause_) return *root_cause_;
  print_error(program_, first_failure_->what());
  return *first_failure_;
}

}  // namespace convoy
