// Collectives on top of point-to-point messages, shared by all message-passing libraries.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "convoy/comm/transport/cpu_sum.h"
#include "convoy/comm/transport/transfer.h"
#include "convoy/comm/transport/transport.h"

namespace convoy::dist {

/// A Transport that implements collectives with MessageLinks. Every collective starts with an all-to-all
/// exchange of signatures, which also detects missing ranks.
///
/// The all-reduce is a direct (all-to-all) reduce-scatter followed by a direct all-gather. Each rank receives
/// its shard from all ranks, sums it in rank order, and sends the sum to all ranks. With n ranks and S bytes,
/// each rank sends 2 (n - 1) / n * S bytes in 2 rounds. Data larger than 1 MiB per message is pipelined in
/// pieces.
///
/// The all-reduce of MPI is not used: its summation order depends on the library version, the size
/// and the number of ranks, it does not support bf16, and it cannot name a missing rank.
class MessageTransport final : public Transport {
 public:
  explicit MessageTransport(std::unique_ptr<MessageLinks> links) : links_(std::move(links)) {}

  std::string name() const override { return links_->name(); }
  int rank() const override { return links_->rank(); }
  int size() const override { return links_->size(); }

  void start() override { links_->start(); }
  void all_reduce(const Call& call, View data) override;
  void reduce_scatter(const Call& call, ConstView in, View out) override;
  void broadcast(const Call& call, View data) override;
  void all_gather(const Call& call, ConstView in, View out) override;
  void barrier(const Call& call) override { enter(call); }
  std::vector<std::string> gather_object(const Call& call, const std::string& local) override;
  std::unique_ptr<Transport> split(const Call& call, int color) override;
  bool poll_peers() override { return links_->poll_peers(); }
  void finish(const Call& call) override;
  void abort(const std::string& reason) noexcept override { links_->abort(reason); }

 private:
  void enter(const Call& call);
  /// Starts to receive the shards of all other ranks into scratch memory, each of the size of `local`.
  /// Returns the shards in rank order; the one of this rank is `local` itself.
  std::vector<SumPart> receive_parts(const ConstView& local);
  template <class F>
  void for_each_peer(F&& f) const;

  CheckedLinks links_;
  std::vector<char> scratch_;
};

}  // namespace convoy::dist
