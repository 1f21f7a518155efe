// NcclWatchdog: compares this rank's GPU progress with its deadlines and with the heartbeat of its peers.
#include "convoy/comm/nccl/nccl_watchdog.h"

#include <vector>

#include "convoy/comm/core/rank_text.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr std::chrono::milliseconds kPeriod{10};

}  // namespace

NcclWatchdog::NcclWatchdog(std::unique_ptr<Communicator> heartbeat, Watched watched,
                           std::function<void(std::exception_ptr)> on_failure)
    : watched_(std::move(watched)),
      on_failure_(std::move(on_failure)),
      heartbeat_(std::move(heartbeat)),
      progress_deadline_(deadline()),
      finish_deadline_(deadline()),
      thread_([this] { watch(); }) {}

NcclWatchdog::~NcclWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void NcclWatchdog::finish() {
  {
    const std::lock_guard lock(mutex_);
    is_finishing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclWatchdog::watch() {
  try {
    while (!heartbeat_.all_finishing()) {
      if (!sleep()) return;
      poll();
    }
    heartbeat_.finish();
  } catch (const std::exception& error) {
    heartbeat_.abort(error.what());
    on_failure_(std::current_exception());
  }
}

/// Waits for one period, or less if finish() or the destructor is called. Returns false once the thread must
/// stop.
bool NcclWatchdog::sleep() {
  std::unique_lock lock(mutex_);
  const bool was_finishing = is_finishing_;
  changed_.wait_for(lock, kPeriod, [&] { return is_stopping_ || is_finishing_ != was_finishing; });
  return !is_stopping_;
}

void NcclWatchdog::poll() {
  HeartbeatMessage now{.started = watched_.progress.started(), .completed = watched_.progress.completed()};
  {
    const std::lock_guard lock(mutex_);
    now.finishing = is_finishing_ ? 1 : 0;
  }
  const bool is_idle = now.started == now.completed;
  const bool has_moved = now.started != last_.started || now.completed != last_.completed;
  if (has_moved && watched_.monitor) report_progress(now);
  if (is_idle || has_moved) progress_deadline_ = deadline();
  if (now.finishing == 0) finish_deadline_ = deadline();
  last_ = now;
  // The deadlines come first: their messages name the collective and the missing ranks.
  if (progress_deadline_.passed())
    fail<PeerError>("{} on {}: waited {} s for {}", to_string(watched_.progress.current()), watched_.name,
                    progress_deadline_.seconds(), ranks_that([&](const HeartbeatMessage& message) {
                      return message.started < now.started;
                    }));
  if (finish_deadline_.passed())
    fail<PeerError>("finish() on {}: waited {} s for {}", watched_.name, finish_deadline_.seconds(),
                    ranks_that([](const HeartbeatMessage& message) { return message.finishing == 0; }));
  try {
    heartbeat_.exchange(now);
    watched_.handle.check();
  } catch (const PeerError& error) {
    fail<PeerError>("{}: {}", watched_.name, error.what());
  }
}

/// Reports the last collective only: many may have run since the last poll.
void NcclWatchdog::report_progress(const HeartbeatMessage& now) const {
  CollectiveSignature last = watched_.progress.current();
  last.number = now.started - 1;
  if (now.started > last_.started) watched_.monitor->started(last);
  if (now.completed >= now.started) watched_.monitor->completed(last);
}

std::string NcclWatchdog::ranks_that(const std::function<bool(const HeartbeatMessage&)>& is_late) const {
  std::vector<int> late;
  for (std::size_t rank = 0; rank < heartbeat_.latest().size(); ++rank)
    if (is_late(heartbeat_.latest()[rank])) late.push_back(static_cast<int>(rank));
  return late.empty() ? "other ranks, all of which have started it" : format_ranks(late);
}

}  // namespace convoy::dist
