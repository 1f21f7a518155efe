#include "convoy/comm/bootstrap/thread_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/deadline.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

/// The shared state of the threads. An exchange is one round: every rank contributes a value and receives all
/// values.
class ThreadRendezvousState {
 public:
  struct Contribution {
    std::string text;
    std::shared_ptr<void> shared;
  };

  explicit ThreadRendezvousState(int ranks) : pending_(static_cast<std::size_t>(ranks)) {}

  /// Returns the contributions of all ranks, in rank order. Blocks until all ranks have contributed. Throws
  /// PeerError after the deadline `limit`, if there is one, or when a rank has exited.
  std::vector<Contribution> exchange(int rank, Contribution local, const std::optional<Deadline>& limit) {
    std::unique_lock lock(mutex_);
    throw_failure();
    pending_[static_cast<std::size_t>(rank)] = std::move(local);
    const std::uint64_t round = round_;
    if (missing().empty()) {
      completed_.clear();
      for (std::optional<Contribution>& contribution : pending_)
        completed_.push_back(*std::exchange(contribution, std::nullopt));
      ++round_;
      changed_.notify_all();
      return completed_;
    }
    const auto is_over = [&] { return round_ != round || !failure_.empty(); };
    if (!limit) {
      changed_.wait(lock, is_over);
    } else if (!changed_.wait_until(lock, limit->at(), is_over)) {
      // Set under the same lock as the timeout check, so no later rank can exchange with this one, which
      // exits.
      failure_ = fmt::format("rank {} waited {} s for {}", rank, limit->seconds(), format_ranks(missing()));
      changed_.notify_all();
    }
    // All ranks contributed, even if one has exited since. The next round needs this rank, so it cannot
    // overwrite the values.
    if (round_ != round) return completed_;
    throw_failure();
    return {};
  }

  void leave(int rank) noexcept {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = fmt::format("rank {} exited before finishing", rank);
    changed_.notify_all();
  }

 private:
  void throw_failure() const {
    if (!failure_.empty()) throw PeerError(failure_);
  }
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < pending_.size(); ++rank)
      if (!pending_[rank]) ranks.push_back(static_cast<int>(rank));
    return ranks;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;  // the first one; later exchanges throw it
  std::vector<std::optional<Contribution>> pending_;
  std::vector<Contribution> completed_;  // of the latest completed round
  std::uint64_t round_ = 0;              // number of completed rounds
};

ThreadRendezvous::ThreadRendezvous(std::shared_ptr<ThreadRendezvousState> state, std::vector<RankInfo> all,
                                   int rank, double timeout_seconds)
    : state_(std::move(state)), all_(std::move(all)), rank_(rank), timeout_(timeout_seconds) {}

ThreadRendezvous::~ThreadRendezvous() { state_->leave(rank_); }

std::vector<std::string> ThreadRendezvous::all_gather(const std::string& local) {
  std::vector<std::string> texts;
  for (ThreadRendezvousState::Contribution& contribution :
       state_->exchange(rank_, {.text = local, .shared = nullptr}, Deadline(timeout_)))
    texts.push_back(std::move(contribution.text));
  return texts;
}

std::string ThreadRendezvous::note() const { return fmt::format("{} threads of one process", all_.size()); }

std::shared_ptr<void> ThreadRendezvous::share(std::shared_ptr<void> local) {
  return state_->exchange(rank_, {.text = "", .shared = std::move(local)}, std::nullopt).front().shared;
}

std::vector<std::unique_ptr<ThreadRendezvous>> rendezvous_in_threads(int ranks, double timeout_seconds) {
  check(ranks >= 1, "number of ranks: found {}, expected 1 or more", ranks);
  const std::vector<HostId> hosts(static_cast<std::size_t>(ranks), this_host());
  const auto state = std::make_shared<ThreadRendezvousState>(ranks);
  std::vector<std::unique_ptr<ThreadRendezvous>> by_rank;
  for (int rank = 0; rank < ranks; ++rank)
    by_rank.push_back(
        std::make_unique<ThreadRendezvous>(state, make_rank_infos(hosts, "threads"), rank, timeout_seconds));
  return by_rank;
}

}  // namespace convoy::dist
