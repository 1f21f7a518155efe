#include "comm/thread_communicator.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "comm/cpu_communicator.h"
#include "comm/cpu_sum.h"
#include "comm/rank_text.h"
#include "comm/thread_rendezvous.h"
#include "comm/view_parts.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

class ThreadGroup;

/// What a rank shows the others while it is in a collective.
struct Shown {
  Collective collective;
  ConstView in;
  View out;
  const std::string* text = nullptr;
  int color = 0;
  std::shared_ptr<ThreadGroup> group;  // that it has made for its color
};

/// The place where the ranks meet. A collective is: come, with what is shown; read and write each other's
/// memory; leave. Nobody leaves while another may still touch its memory, so an error inside cannot pull it
/// away.
class ThreadGroup {
 public:
  explicit ThreadGroup(int size) : shown_(static_cast<std::size_t>(size)), came_(shown_.size(), false) {}

  int size() const { return static_cast<int>(shown_.size()); }
  /// Of any rank, from enter() to leave().
  Shown& of(int rank) { return shown_[static_cast<std::size_t>(rank)]; }

  void enter(int rank, const Deadline& deadline, Shown mine) {
    std::unique_lock lock(mutex_);
    throw_failure();
    of(rank) = std::move(mine);
    came_[static_cast<std::size_t>(rank)] = true;
    const std::uint64_t meeting = meeting_;
    if (std::all_of(came_.begin(), came_.end(), [](bool came) { return came; })) {
      came_.assign(came_.size(), false);
      inside_ = size();
      ++meeting_;
      changed_.notify_all();
      return;
    }
    const bool happened =
        changed_.wait_until(lock, deadline.at(), [&] { return meeting_ != meeting || !failure_.empty(); });
    if (meeting_ != meeting) return;  // also where somebody has failed since: all are inside
    // Under the same lock as the decision: whoever comes now must not find this rank, which goes away.
    if (!happened)
      failure_ =
          fmt::format("rank {} waited {} s for {}", rank, deadline.seconds(), text_of_ranks(missing()));
    throw_failure();
  }

  /// All that ranks do inside is compute, so this wait ends.
  void leave() noexcept {
    std::unique_lock lock(mutex_);
    const std::uint64_t meeting = meeting_;
    if (--inside_ == 0) {
      ++departures_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return departures_ == meeting; });
  }

  void abort(const std::string& reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = reason;
    changed_.notify_all();
  }

 private:
  void throw_failure() const {
    if (!failure_.empty()) throw PeerError(failure_);
  }
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank)
      if (!came_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
    return ranks;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::string failure_;  // the first; nobody enters any more
  std::vector<Shown> shown_;
  std::vector<bool> came_;        // to the next meeting
  int inside_ = 0;                // ranks that have not left the present one
  std::uint64_t meeting_ = 0;     // of how many all ranks came
  std::uint64_t departures_ = 0;  // of how many all ranks left
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(int rank, std::shared_ptr<ThreadGroup> group) : rank_(rank), group_(std::move(group)) {}

  std::string name() const override { return "thread"; }
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void all_reduce(const Call& call, View data) override {
    meet(call, {.in = data, .out = data}, [&] {
      // Each rank sums its part, of everybody's data, and is the only one to touch it.
      const std::int64_t begin = data.numel() * rank_ / size(), end = data.numel() * (rank_ + 1) / size();
      const View sum = part_of(data, begin, end - begin);
      sum_in_order(call.stream, everybodys_part(begin, end - begin), sum);
      for (int rank = 0; rank < size(); ++rank)
        if (rank != rank_) copy_view(sum, part_of(group_->of(rank).out, begin, end - begin));
    });
  }

  void reduce_scatter(const Call& call, ConstView in, View out) override {
    meet(call, {.in = in},
         [&] { sum_in_order(call.stream, everybodys_part(out.numel() * rank_, out.numel()), out); });
  }

  void broadcast(const Call& call, View data) override {
    meet(call, {.in = data}, [&] {
      const int root = call.collective.root;
      if (rank_ != root) copy_view(group_->of(root).in, data);
    });
  }

  void all_gather(const Call& call, ConstView in, View out) override {
    meet(call, {.in = in}, [&] {
      for (int rank = 0; rank < size(); ++rank)
        copy_view(group_->of(rank).in, part_of(out, in.numel() * rank, in.numel()));
    });
  }

  void barrier(const Call& call) override {
    meet(call, {}, [] {});
  }

  std::vector<std::string> gather(const Call& call, const std::string& mine) override {
    std::vector<std::string> texts;
    meet(call, {.text = &mine}, [&] {
      if (rank_ != 0) return;
      for (int rank = 0; rank < size(); ++rank) texts.push_back(*group_->of(rank).text);
    });
    return texts;
  }

  std::unique_ptr<Transport> split(const Call& call, int color) override {
    std::vector<int> members;
    meet(call, {.color = color}, [&] {
      for (int rank = 0; rank < size(); ++rank)
        if (group_->of(rank).color == color) members.push_back(rank);
    });
    // The first of a color makes the group, the others find it.
    std::shared_ptr<ThreadGroup> part;
    if (members.front() == rank_) part = std::make_shared<ThreadGroup>(static_cast<int>(members.size()));
    meet(call, {.group = part}, [&] { part = group_->of(members.front()).group; });
    const auto me = std::find(members.begin(), members.end(), rank_);
    return std::make_unique<ThreadTransport>(static_cast<int>(me - members.begin()), std::move(part));
  }

  void finish(const Call& call) override { barrier(call); }
  void abort(const std::string& reason) noexcept override { group_->abort(reason); }

 private:
  template <class F>
  void meet(const Call& call, Shown mine, F&& inside) {
    mine.collective = call.collective;
    group_->enter(rank_, call.deadline, std::move(mine));
    struct Leave {
      ThreadGroup& group;
      ~Leave() { group.leave(); }
    } const leave{*group_};
    std::vector<Collective> by_rank;
    for (int rank = 0; rank < size(); ++rank) by_rank.push_back(group_->of(rank).collective);
    check_same(by_rank);
    inside();
  }

  std::vector<ConstView> everybodys_part(std::int64_t offset, std::int64_t count) {
    std::vector<ConstView> parts;
    for (int rank = 0; rank < size(); ++rank) parts.push_back(part_of(group_->of(rank).in, offset, count));
    return parts;
  }

  int rank_;
  std::shared_ptr<ThreadGroup> group_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks, const CommOptions& options) {
  check(ranks >= 1, "a group has 1 rank or more, not {}", ranks);
  const auto group = std::make_shared<ThreadGroup>(ranks);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank)
    communicators.push_back(
        std::make_unique<CpuCommunicator>(std::make_unique<ThreadTransport>(rank, group), options));
  return communicators;
}

std::unique_ptr<Communicator> make_thread_communicator(Rendezvous& rendezvous, const CommOptions& options) {
  using Communicators = std::vector<std::unique_ptr<Communicator>>;
  auto* const met = dynamic_cast<ThreadRendezvous*>(&rendezvous);
  check(met != nullptr,
        "--comm thread: the ranks are no threads of one process ({}): start one, with --devices",
        rendezvous.note());
  const RankInfo& info = rendezvous.info();
  std::shared_ptr<Communicators> mine;
  if (info.rank == 0) mine = std::make_shared<Communicators>(make_thread_communicators(info.world, options));
  const auto by_rank = std::static_pointer_cast<Communicators>(met->share(std::move(mine)));
  return std::move((*by_rank)[static_cast<std::size_t>(info.rank)]);
}

}  // namespace convoy
