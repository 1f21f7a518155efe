#include "apps/endings.h"

#include <unistd.h>

#include <chrono>

namespace convoy {

void Endings::add_failure(ExitCode code, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (!first_) first_.emplace(code, what);
  changed_.notify_all();
  if (cause_ || code == ExitCode::peer) return;
  cause_.emplace(code, what);
  print_error(program_, what);
}

void Endings::add_end() {
  const std::lock_guard lock(mutex_);
  ++ended_;
  changed_.notify_all();
}

void Endings::wait(int ranks, double grace_seconds) {
  std::unique_lock lock(mutex_);
  const auto all_have_ended = [&] { return ended_ == ranks; };
  changed_.wait(lock, [&] { return all_have_ended() || first_; });
  if (!first_) return;
  if (!changed_.wait_for(lock, std::chrono::duration<double>(grace_seconds), all_have_ended))
    _exit(static_cast<int>(told().code()));
  throw ReportedError(told());
}

const ReportedError& Endings::told() {
  if (cause_) return *cause_;
  print_error(program_, first_->what());
  return *first_;
}

}  // namespace convoy
