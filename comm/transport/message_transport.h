// Collectives on top of point-to-point messages, shared by all message-passing libraries.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "convoy/comm/core/all_reduce.h"
#include "convoy/comm/transport/cpu_sum.h"
#include "convoy/comm/transport/sparse_collectives.h"
#include "convoy/comm/transport/transfer.h"
#include "convoy/comm/transport/transport.h"

namespace convoy::dist {

/// A Transport that implements collectives with MessageLinks, by one of the algorithms of AllReduce (README.md). Every
/// collective starts with a comparison of signatures, which also detects missing ranks: all-to-all if the links are,
/// otherwise along a tree.
///
/// The all-reduce of MPI is not used: its summation order depends on the library version, the size
/// and the number of ranks, it does not support bf16, and it cannot name a missing rank.
class MessageTransport final : public Transport {
 public:
  /// `links` connects each rank with options.peers() at least.
  explicit MessageTransport(std::unique_ptr<MessageLinks> links, const AllReduceOptions& options = {});

  std::string name() const override { return links_->name(); }
  int rank() const override { return links_->rank(); }
  int size() const override { return links_->size(); }

  void start() override { links_->start(); }
  void all_reduce(const Call& call, View data) override;
  void reduce_scatter(const Call& call, ConstView in, View out) override;
  void broadcast(const Call& call, View data) override;
  void all_gather(const Call& call, ConstView in, View out) override;
  void barrier(const Call& call) override { enter(call.collective, call.deadline); }
  std::vector<std::string> gather_object(const Call& call, const std::string& local) override;
  std::unique_ptr<Transport> split(const Call& call, int color) override;
  bool poll_peers() override { return links_->poll_peers(); }
  void finish(const Call& call) override;
  void abort(const std::string& reason) noexcept override { links_->abort(reason); }

 private:
  /// Compares the signature with those of the other ranks.
  void enter(const CollectiveSignature& collective, const Deadline& deadline);
  /// Does the same with the algorithm for `bytes` in the signature. Returns the algorithm.
  AllReduce enter_sum(const Call& call, std::size_t bytes);
  void all_reduce_directly(const Call& call, View data);
  void reduce_scatter_directly(const Call& call, ConstView in, View out);
  /// Returns memory for `count` elements.
  View work(std::int64_t count, DType dtype);
  /// Starts to receive the shards of all other ranks into work(), each of the size of `local`.
  /// Returns the shards in rank order; the one of this rank is `local` itself.
  std::vector<SumPart> receive_parts(const ConstView& local);
  template <class F>
  void for_each_peer(F&& f) const;

  CheckedLinks links_;
  const AllReduceOptions options_;
  LinkGroup group_;  // of all ranks
  std::vector<char> work_;
};

}  // namespace convoy::dist
