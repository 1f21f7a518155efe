// The exchange of values between threads of one process.
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/deadline.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

/// Rounds in which the ranks of a group exchange values. In each round a rank enters with a value, and may then
/// read those of the other ranks until it enters the next round. Thread-safe.
template <class Value>
class ThreadRounds {
 public:
  explicit ThreadRounds(int size) : entered_(static_cast<std::size_t>(size), false) {
    for (std::vector<Value>& of_round : values_) of_round.resize(entered_.size());
  }

  int size() const { return static_cast<int>(entered_.size()); }
  /// Returns the value of any rank. Valid between enter() and the calling rank's next enter().
  Value& of(int rank) { return in_round(round_ - 1, rank); }

  /// Blocks until all ranks have entered. Throws PeerError if the group has failed or the deadline passes.
  void enter(int rank, const Deadline& deadline, Value local) {
    std::unique_lock lock(mutex_);
    throw_failure();
    in_round(round_, rank) = std::move(local);
    entered_[static_cast<std::size_t>(rank)] = true;
    const std::uint64_t round = round_;
    if (missing().empty()) {
      entered_.assign(entered_.size(), false);
      inside_ = size();
      ++round_;
      changed_.notify_all();
      return;
    }
    const auto is_over = [&] { return round_ != round || !failure_.empty(); };
    while (!is_over() && !deadline.passed()) changed_.wait_until(lock, deadline.at(), is_over);
    // All ranks have entered, even if one has failed since.
    if (round_ != round) return;
    // Set under the same lock as the timeout check, so no later rank can enter with this one, which leaves.
    if (failure_.empty())
      failure_ = fmt::format("rank {} waited {} s for {}", rank, deadline.seconds(), format_ranks(missing()));
    changed_.notify_all();
    throw_failure();
  }

  /// Blocks until all ranks have left the round: they are done with what the values refer to. Needs no
  /// deadline: between enter() and leave() ranks only compute. Either all ranks call it in a round, or none.
  void leave() noexcept {
    std::unique_lock lock(mutex_);
    const std::uint64_t round = round_;
    if (--inside_ == 0) {
      rounds_left_ = round;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return rounds_left_ == round; });
  }

  /// Returns whether a rank has entered the next round. Throws PeerError if the group has failed.
  bool has_entered_rank() {
    const std::lock_guard lock(mutex_);
    throw_failure();
    return std::find(entered_.begin(), entered_.end(), true) != entered_.end();
  }

  /// Makes current and later calls of enter() throw PeerError with `reason`. Only the first call has an
  /// effect.
  void abort(const std::string& reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = reason;
    changed_.notify_all();
  }

 private:
  Value& in_round(std::uint64_t round, int rank) {
    return values_[round % values_.size()][static_cast<std::size_t>(rank)];
  }
  void throw_failure() const {
    if (!failure_.empty()) throw PeerError(failure_);
  }
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank)
      if (!entered_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
    return ranks;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;                       // the first one
  std::array<std::vector<Value>, 2> values_;  // of one round are read while those of the next are set
  std::vector<bool> entered_;                 // by rank, for the next round
  int inside_ = 0;                            // number of ranks that have not left the current round
  std::uint64_t round_ = 0;                   // number of rounds that all ranks have entered
  std::uint64_t rounds_left_ = 0;             // the last round that all ranks have left
};

}  // namespace convoy::dist
