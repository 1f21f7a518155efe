// GpuProgress: the host side of the counting kernels. NcclWatchdog: compares the progress with its deadline, and
// polls the other ranks.
#include "convoy/comm/nccl/nccl_watchdog.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>
#include <vector>

#include "convoy/comm/core/collective.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr std::size_t kBytes = 2 * sizeof(kernels::ProgressNote);

std::uint64_t count_of(kernels::ProgressNote& note) {
  return std::atomic_ref(note.count).load(std::memory_order_relaxed);
}

constexpr std::chrono::milliseconds kPeriod{10};
constexpr double kPeersPeriod = 0.05;  // seconds between polls of the other ranks
constexpr double kAnswerSeconds = 5;   // for the other ranks to tell their progress

std::string format_name(int rank, int ranks) { return fmt::format("rank {} of {} (nccl)", rank, ranks); }

}  // namespace

GpuProgress::GpuProgress(const DeviceContext& device)
    : device_(device), notes_(new (device_.staging().allocate(kBytes)) kernels::ProgressNote[2]{}) {}

GpuProgress::~GpuProgress() { device_.staging().release(notes_, kBytes); }

void GpuProgress::note(CudaStream& stream, int which, const CollectiveSignature& collective) {
  kernels::note_progress(stream, which, &notes_[which],
                         std::bit_cast<kernels::ProgressNote::Content>(collective));
}

std::uint64_t GpuProgress::started() const { return count_of(notes_[0]); }
std::uint64_t GpuProgress::completed() const { return count_of(notes_[1]); }

CollectiveSignature GpuProgress::current() const {
  return std::bit_cast<CollectiveSignature>(notes_[0].content);
}

NcclWatchdog::NcclWatchdog(std::unique_ptr<Communicator> peers, Watched watched,
                           std::function<void(std::exception_ptr)> on_failure)
    : peers_(std::move(peers)),
      watched_(std::move(watched)),
      on_failure_(std::move(on_failure)),
      progress_deadline_(deadline()),
      thread_([this] { watch(); }) {}

void NcclWatchdog::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void NcclWatchdog::watch() {
  try {
    while (sleep()) poll();
  } catch (const std::exception& error) {
    peers_->abort(error.what());
    on_failure_(std::current_exception());
  }
}

/// Waits for one period, or less if stop() is called. Returns false once the thread must stop.
bool NcclWatchdog::sleep() {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, kPeriod, [&] { return is_stopping_; });
}

void NcclWatchdog::poll() {
  Progress now{.started = watched_.progress.started(), .completed = watched_.progress.completed()};
  const bool is_idle = now.started == now.completed;
  const bool has_moved = now.started != last_.started || now.completed != last_.completed;
  if (has_moved && watched_.options.monitor) report_progress(now);
  if (is_idle || has_moved) progress_deadline_ = deadline();
  last_ = now;
  bool is_asked = false;
  try {
    watched_.handle.check();
    if (next_poll_.passed()) {
      is_asked = peers_->poll_peers();
      next_poll_ = Deadline(kPeersPeriod);
    }
  } catch (const PeerError& error) {
    fail<PeerError>("{}: {}", format_name(peers_->rank(), peers_->size()), error.what());
  }
  now.is_late = progress_deadline_.passed() ? 1 : 0;
  if (now.is_late != 0) now.current = watched_.progress.current();
  if (now.is_late != 0 || is_asked) name_missing_ranks(now);
}

/// Reports the last collective only: many may have run since the last poll.
void NcclWatchdog::report_progress(const Progress& now) const {
  CollectiveSignature last = watched_.progress.current();
  last.number = now.started - 1;
  if (now.started > last_.started) watched_.options.monitor->started(last);
  if (now.completed >= now.started) watched_.options.monitor->completed(last);
}

void NcclWatchdog::name_missing_ranks(const Progress& local) {
  const double seconds = watched_.options.timeout_seconds;
  const std::string name = format_name(peers_->rank(), peers_->size());
  std::vector<Progress> by_rank(static_cast<std::size_t>(peers_->size()));
  const auto bytes = static_cast<std::int64_t>(sizeof(Progress));
  try {
    peers_->set_timeout(std::min(kAnswerSeconds, seconds));
    peers_->all_gather(ConstView(&local, {bytes}, DType::u8),
                       View{by_rank.data(), {bytes * peers_->size()}, DType::u8});
    peers_->synchronize();
  } catch (const PeerError& error) {
    if (local.is_late == 0) {
      // Another rank was late first, often in the collective that this one has started a moment later.
      const bool is_idle = watched_.progress.started() == watched_.progress.completed();
      const std::string where = is_idle ? "" : fmt::format("{} on ", to_string(watched_.progress.current()));
      fail<PeerError>("{}{}: {}", where, name, error.what());
    }
    fail<PeerError>("{} on {}: waited {} s for other ranks; {}", to_string(local.current), name, seconds,
                    error.what());
  }
  // All ranks name the same collective.
  const auto late =
      std::find_if(by_rank.begin(), by_rank.end(), [](const Progress& rank) { return rank.is_late != 0; });
  if (late == by_rank.end()) fail<PeerError>("{}: asked for its progress by a rank that is not late", name);
  std::vector<int> missing;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
    if (by_rank[rank].started < late->started) missing.push_back(static_cast<int>(rank));
  fail<PeerError>("{} on {}: waited {} s for {}", to_string(late->current),
                  format_name(static_cast<int>(late - by_rank.begin()), peers_->size()), seconds,
                  missing.empty() ? "other ranks, all of which have started it" : format_ranks(missing));
}

}  // namespace convoy::dist
