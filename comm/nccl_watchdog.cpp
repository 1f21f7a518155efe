#include "comm/nccl_watchdog.h"

#include <vector>

#include "comm/rank_text.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

constexpr std::chrono::milliseconds kPeriod{10};

}  // namespace

NcclWatchdog::NcclWatchdog(std::unique_ptr<Communicator> heartbeat, Watched watched,
                           std::function<void(std::exception_ptr)> on_failure)
    : watched_(std::move(watched)),
      on_failure_(std::move(on_failure)),
      heartbeat_(std::move(heartbeat)),
      until_(watched_.timeout_seconds),
      end_by_(watched_.timeout_seconds),
      thread_([this] { watch(); }) {}

NcclWatchdog::~NcclWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void NcclWatchdog::end() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void NcclWatchdog::watch() {
  try {
    while (!heartbeat_.is_over()) {
      if (!wait()) return;
      look();
    }
    heartbeat_.finish();
  } catch (const std::exception& error) {
    heartbeat_.abort(error.what());
    on_failure_(std::current_exception());
  }
}

/// False where there is nothing more to watch.
bool NcclWatchdog::wait() {
  std::unique_lock lock(mutex_);
  const bool was_ending = is_ending_;
  changed_.wait_for(lock, kPeriod, [&] { return is_stopping_ || is_ending_ != was_ending; });
  return !is_stopping_;
}

void NcclWatchdog::look() {
  Beat now{.entered = watched_.progress.entered(), .left = watched_.progress.left()};
  {
    const std::lock_guard lock(mutex_);
    now.is_ending = is_ending_ ? 1 : 0;
  }
  if (now.entered == now.left || now.entered != seen_.entered || now.left != seen_.left)
    until_ = Deadline(watched_.timeout_seconds);
  if (now.is_ending == 0) end_by_ = Deadline(watched_.timeout_seconds);
  seen_ = now;
  // First what says most.
  if (until_.passed())
    fail<PeerError>("{} on {}: waited {} s for {}", text_of(watched_.progress.current()), watched_.name,
                    until_.seconds(),
                    ranks_that([&](const Beat& beat) { return beat.entered < now.entered; }));
  if (end_by_.passed())
    fail<PeerError>("the end on {}: waited {} s for {}", watched_.name, end_by_.seconds(),
                    ranks_that([](const Beat& beat) { return beat.is_ending == 0; }));
  try {
    heartbeat_.tick(now);
    watched_.handle.check();
  } catch (const PeerError& error) {
    fail<PeerError>("{}: {}", watched_.name, error.what());
  }
}

std::string NcclWatchdog::ranks_that(const std::function<bool(const Beat&)>& is_late) const {
  std::vector<int> late;
  for (std::size_t rank = 0; rank < heartbeat_.latest().size(); ++rank)
    if (is_late(heartbeat_.latest()[rank])) late.push_back(static_cast<int>(rank));
  return late.empty() ? "other ranks, which have all come" : text_of_ranks(late);
}

}  // namespace convoy
