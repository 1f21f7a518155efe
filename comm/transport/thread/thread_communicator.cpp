#include "convoy/comm/transport/thread/thread_communicator.h"

#include <algorithm>
#include <utility>

#include "convoy/comm/bootstrap/thread_rendezvous.h"
#include "convoy/comm/bootstrap/thread_rounds.h"
#include "convoy/comm/core/collective.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/transfer.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

struct Arguments;
/// In each collective a rank enters with its arguments, accesses the memory of the other ranks directly, and
/// leaves. So all ranks are done with each other's memory before one returns, even if one of them has failed.
using ThreadGroup = ThreadRounds<Arguments>;

/// The arguments of a collective that a rank makes visible to the other ranks.
struct Arguments {
  CollectiveSignature collective;
  ConstView in;
  View out;
  const std::string* text = nullptr;
  int color = 0;
  std::shared_ptr<ThreadGroup> group;  // created by the first rank of each color in split()
  /// The checksums of what this rank sends, by the rank that reads it. Computed before the rank enters.
  std::vector<std::uint64_t> sent = {};
  // Set inside the collective, and read by the other ranks when all have left.
  std::uint64_t sum = 0;     // the checksum of the sum that this rank has written to all ranks
  std::string failure = {};  // why there is no sum; empty: there is one
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(int rank, std::shared_ptr<ThreadGroup> group) : rank_(rank), group_(std::move(group)) {}

  std::string name() const override { return "thread"; }
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void all_reduce(const Call& call, View data) override {
    const auto shard_for = [&](int rank) { return shard_of(data, rank, size()); };
    run_collective(call, {.in = data, .out = data, .sent = checksums_of(shard_for)}, [&] {
      // Each rank sums one shard over all ranks and writes the sum to all ranks. No other rank accesses that
      // shard.
      const View sum = shard_for(rank_);
      group_->of(rank_).sum =
          sum_verified(sum, [&](int rank) { return shard_of(group_->of(rank).out, rank_, size()); });
      for (int rank = 0; rank < size(); ++rank)
        if (rank != rank_) copy_view(sum, shard_of(group_->of(rank).out, rank_, size()));
    });
    for (int rank = 0; rank < size(); ++rank)
      if (rank != rank_)
        verify_transfer(kSum, rank, rank_, group_->of(rank).sum, checksum_of(shard_for(rank)));
  }

  void reduce_scatter(const Call& call, ConstView in, View out) override {
    const auto chunk_of = [&](const ConstView& whole, int rank) {
      return subview(whole, out.numel() * rank, out.numel());
    };
    run_collective(call, {.in = in, .sent = checksums_of([&](int rank) { return chunk_of(in, rank); })}, [&] {
      sum_verified(out, [&](int rank) { return chunk_of(group_->of(rank).in, rank_); });
    });
  }

  void broadcast(const Call& call, View data) override {
    const int root = call.collective.root;
    Arguments local{.in = data};
    if (rank_ == root) local.sent.assign(static_cast<std::size_t>(size()), checksum_of(data));
    run_collective(call, std::move(local), [&] {
      if (rank_ != root) copy_verified(root, data);
    });
  }

  void all_gather(const Call& call, ConstView in, View out) override {
    Arguments local{.in = in, .sent = std::vector(static_cast<std::size_t>(size()), checksum_of(in))};
    run_collective(call, std::move(local), [&] {
      copy_view(in, subview(out, in.numel() * rank_, in.numel()));
      for (int rank = 0; rank < size(); ++rank)
        if (rank != rank_) copy_verified(rank, subview(out, in.numel() * rank, in.numel()));
    });
  }

  void barrier(const Call& call) override {
    run_collective(call, {}, [] {});
  }

  std::vector<std::string> gather_object(const Call& call, const std::string& local) override {
    std::vector<std::string> texts;
    run_collective(call, {.text = &local}, [&] {
      if (rank_ != 0) return;
      for (int rank = 0; rank < size(); ++rank) texts.push_back(*group_->of(rank).text);
    });
    return texts;
  }

  std::unique_ptr<Transport> split(const Call& call, int color) override {
    std::vector<int> members;
    run_collective(call, {.color = color}, [&] {
      for (int rank = 0; rank < size(); ++rank)
        if (group_->of(rank).color == color) members.push_back(rank);
    });
    // The first rank of each color creates the group; the others read it from its arguments.
    std::shared_ptr<ThreadGroup> part;
    if (members.front() == rank_) part = std::make_shared<ThreadGroup>(static_cast<int>(members.size()));
    run_collective(call, {.group = part}, [&] { part = group_->of(members.front()).group; });
    const auto me = std::find(members.begin(), members.end(), rank_);
    return std::make_unique<ThreadTransport>(static_cast<int>(me - members.begin()), std::move(part));
  }

  bool poll_peers() override { return group_->has_entered_rank(); }
  void finish(const Call& call) override { barrier(call); }
  void abort(const std::string& reason) noexcept override { group_->abort(reason); }

 private:
  /// Publishes `local`, verifies that all ranks launched the same collective, and calls `inside`, which may
  /// access the arguments and memory of all ranks. If `inside` throws a PeerError on one rank, all ranks
  /// throw it.
  template <class F>
  void run_collective(const Call& call, Arguments local, F&& inside) {
    local.collective = call.collective;
    group_->enter(rank_, call.deadline, std::move(local));
    struct Leave {
      ThreadGroup& group;
      bool is_done = false;
      void now() {
        if (!std::exchange(is_done, true)) group.leave();
      }
      ~Leave() { now(); }
    } leave{*group_};
    std::vector<CollectiveSignature> by_rank;
    for (int rank = 0; rank < size(); ++rank) by_rank.push_back(group_->of(rank).collective);
    verify_consistency(by_rank);
    try {
      inside();
    } catch (const PeerError& error) {
      group_->of(rank_).failure = error.what();
    }
    leave.now();
    for (int rank = 0; rank < size(); ++rank)
      if (!group_->of(rank).failure.empty()) throw PeerError(group_->of(rank).failure);
  }

  /// Returns the checksums of the parts of this rank's data that the other ranks sum.
  template <class PartFor>
  std::vector<std::uint64_t> checksums_of(PartFor&& part_for) const {
    std::vector<std::uint64_t> checksums;
    for (int rank = 0; rank < size(); ++rank)
      checksums.push_back(rank == rank_ ? 0 : checksum_of(part_for(rank)));
    return checksums;
  }

  /// Sets `sum` to the sum of the parts of all ranks, and returns its checksum. Throws CorruptionError if a
  /// part is not what its rank has sent.
  template <class PartOf>
  std::uint64_t sum_verified(const View& sum, PartOf&& part_of) {
    std::vector<SentPart> parts;
    for (int rank = 0; rank < size(); ++rank)
      parts.push_back(rank == rank_ ? SentPart{part_of(rank)} : SentPart{part_of(rank), rank, sent_by(rank)});
    Checksum of_sum;
    dist::sum_verified(parts, rank_, sum, &of_sum);
    return of_sum.value();
  }

  void copy_verified(int from, const View& to) {
    verify_transfer(kData, from, rank_, sent_by(from), copy_with_checksum(group_->of(from).in, to));
  }

  std::uint64_t sent_by(int rank) const { return group_->of(rank).sent[static_cast<std::size_t>(rank_)]; }

  int rank_;
  std::shared_ptr<ThreadGroup> group_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks, const CommOptions& options) {
  check(ranks >= 1, "number of ranks: found {}, expected 1 or more", ranks);
  const auto group = std::make_shared<ThreadGroup>(ranks);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < ranks; ++rank)
    communicators.push_back(
        std::make_unique<CpuCommunicator>(std::make_unique<ThreadTransport>(rank, group), options));
  return communicators;
}

std::unique_ptr<Communicator> make_thread_communicator(Rendezvous& rendezvous, const CommOptions& options) {
  using Communicators = std::vector<std::unique_ptr<Communicator>>;
  auto* const thread_rendezvous = dynamic_cast<ThreadRendezvous*>(&rendezvous);
  check(thread_rendezvous != nullptr, "thread communicator: the ranks are not threads of one process ({})",
        rendezvous.note());
  const RankInfo& info = rendezvous.info();
  std::shared_ptr<Communicators> local;
  if (info.rank == 0)
    local = std::make_shared<Communicators>(make_thread_communicators(info.world_size, options));
  const auto by_rank = std::static_pointer_cast<Communicators>(thread_rendezvous->share(std::move(local)));
  std::unique_ptr<Communicator> own = std::move((*by_rank)[static_cast<std::size_t>(info.rank)]);
  own->set_monitor(options.monitor);  // rank 0 has made it
  return own;
}

}  // namespace convoy::dist
