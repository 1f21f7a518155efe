#include "comm/thread_rendezvous.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include "comm/deadline.h"
#include "comm/host.h"
#include "comm/rank_text.h"
#include "kernels/runtime/check.h"

namespace convoy {

/// Rounds, in each of which every rank brings something, and sees what all have brought.
class ThreadMeeting {
 public:
  struct Brought {
    std::string text;
    std::shared_ptr<void> shared;
  };

  explicit ThreadMeeting(int ranks) : coming_(static_cast<std::size_t>(ranks)) {}

  /// limit: none where a rank may take as long as it likes, and says so if it leaves.
  std::vector<Brought> exchange(int rank, Brought mine, const std::optional<Deadline>& limit) {
    std::unique_lock lock(mutex_);
    throw_failure();
    coming_[static_cast<std::size_t>(rank)] = std::move(mine);
    const std::uint64_t round = round_;
    if (missing().empty()) {
      came_.clear();
      for (std::optional<Brought>& brought : coming_) came_.push_back(*std::exchange(brought, std::nullopt));
      ++round_;
      changed_.notify_all();
      return came_;
    }
    const auto is_over = [&] { return round_ != round || !failure_.empty(); };
    if (!limit) {
      changed_.wait(lock, is_over);
    } else if (!changed_.wait_until(lock, limit->at(), is_over)) {
      // Under the same lock as the decision: whoever comes now must not find this rank, which goes away.
      failure_ = fmt::format("rank {} waited {} s for {}", rank, limit->seconds(), text_of_ranks(missing()));
      changed_.notify_all();
    }
    // Nobody begins the next round before this rank comes to it. All came, even if one has left since.
    if (round_ != round) return came_;
    throw_failure();
    return {};
  }

  void leave(int rank) noexcept {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = fmt::format("rank {} left before the end", rank);
    changed_.notify_all();
  }

 private:
  void throw_failure() const {
    if (!failure_.empty()) throw PeerError(failure_);
  }
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < coming_.size(); ++rank)
      if (!coming_[rank]) ranks.push_back(static_cast<int>(rank));
    return ranks;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;  // the first; nobody enters any more
  std::vector<std::optional<Brought>> coming_;
  std::vector<Brought> came_;  // in the latest round
  std::uint64_t round_ = 0;    // of how many all ranks came
};

ThreadRendezvous::ThreadRendezvous(std::shared_ptr<ThreadMeeting> meeting, std::vector<RankInfo> all,
                                   int rank, double timeout_seconds)
    : meeting_(std::move(meeting)), all_(std::move(all)), rank_(rank), timeout_(timeout_seconds) {}

ThreadRendezvous::~ThreadRendezvous() { meeting_->leave(rank_); }

std::vector<std::string> ThreadRendezvous::all_gather(const std::string& mine) {
  std::vector<std::string> texts;
  for (ThreadMeeting::Brought& brought :
       meeting_->exchange(rank_, {.text = mine, .shared = nullptr}, Deadline(timeout_)))
    texts.push_back(std::move(brought.text));
  return texts;
}

std::string ThreadRendezvous::note() const {
  return fmt::format("--devices {}, threads of one process", all_.size());
}

std::shared_ptr<void> ThreadRendezvous::share(std::shared_ptr<void> mine) {
  return meeting_->exchange(rank_, {.text = "", .shared = std::move(mine)}, std::nullopt).front().shared;
}

std::vector<std::unique_ptr<ThreadRendezvous>> meet_in_threads(int ranks, double timeout_seconds) {
  check(ranks >= 1, "a job has 1 rank or more, not {}", ranks);
  const std::vector<HostId> hosts(static_cast<std::size_t>(ranks), this_host());
  const auto meeting = std::make_shared<ThreadMeeting>(ranks);
  std::vector<std::unique_ptr<ThreadRendezvous>> by_rank;
  for (int rank = 0; rank < ranks; ++rank)
    by_rank.push_back(
        std::make_unique<ThreadRendezvous>(meeting, infos_of(hosts, "threads"), rank, timeout_seconds));
  return by_rank;
}

}  // namespace convoy
