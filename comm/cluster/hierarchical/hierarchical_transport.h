// Collectives across several hosts: shared memory within a host, messages between hosts.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/cluster/hierarchical/hierarchical_layout.h"
#include "convoy/comm/transport/cpu_sum.h"
#include "convoy/comm/transport/shm/shared_segment.h"
#include "convoy/comm/transport/shm/shm_communicator.h"
#include "convoy/comm/transport/transfer.h"
#include "convoy/comm/transport/transport.h"

namespace convoy::dist {

/// A Transport with two-stage reductions: first over the ranks of each host, in rank order, then over the
/// hosts, in host order. f16 and bf16 are accumulated in f32 and rounded once, after the second stage. Each
/// host sends only its locally reduced data across the network.
///
/// The all-reduce processes data in chunks. A chunk has one slice per node leader of a host
/// (HierarchicalLayout). A node leader
/// 1. sums its slice over the ranks of its host, in shared memory,
/// 2. exchanges it with its peers on the other hosts by a direct reduce-scatter, in which each peer sums one
///    shard of the slice over all hosts, and a direct all-gather, and
/// 3. writes the complete slice to shared memory for the ranks of its host.
/// With H hosts and S bytes of data, each host sends 2 (H - 1) / H * S bytes. All node leaders of a host send
/// concurrently, over separate connections.
///
/// Signatures are exchanged directly between all ranks of different hosts. So every rank detects missing
/// ranks itself.
class HierarchicalTransport final : public Transport {
 public:
  /// `links` connects all ranks; `segment` connects the ranks of this host. `chunk_bytes` must be the same on
  /// all ranks, at most the segment's chunk size, and a multiple of 64 times the number of ranks.
  HierarchicalTransport(std::unique_ptr<MessageLinks> links, HierarchicalLayout layout,
                        std::unique_ptr<SharedSegment> segment, std::size_t chunk_bytes);

  std::string name() const override { return "shm+" + links_->name(); }
  int rank() const override { return links_->rank(); }
  int size() const override { return links_->size(); }

  void start() override;
  void all_reduce(const Call& call, View data) override;
  void reduce_scatter(const Call& call, ConstView in, View out) override;
  void broadcast(const Call& call, View data) override;
  void all_gather(const Call& call, ConstView in, View out) override;
  void barrier(const Call& call) override { enter(call); }
  std::vector<std::string> gather_object(const Call& call, const std::string& local) override;
  std::unique_ptr<Transport> split(const Call& call, int color) override;
  bool poll_peers() override;
  void finish(const Call& call) override;
  void abort(const std::string& reason) noexcept override;

 private:
  /// Exchanges and compares signatures with all ranks. Returns the deadline for waits within this host. It is
  /// later than the deadline for other hosts. So a rank that waits for another host times out first, and its
  /// error, which names the missing rank, reaches the ranks of its host.
  Deadline enter(const Call& call);
  /// Blocks until all ranks of this host have called it.
  void local_barrier(const Deadline& local_deadline);

  // The stages of an all-reduce of the chunk with this number.
  void reduce_within_host(const View& chunk, std::int64_t number, const Deadline& local_deadline);
  void start_exchange_of_partial_sums(const View& chunk, std::int64_t number);
  void start_exchange_of_sums(const View& chunk);
  void reduce_across_hosts(const View& chunk, std::int64_t number);
  void broadcast_within_host(const View& chunk, std::int64_t number, const Deadline& local_deadline);

  std::size_t slice_bytes(std::size_t chunk_bytes) const;
  /// Returns the slice of `chunk` that the node leaders with local rank `leader` reduce.
  View slice_of(const View& chunk, int leader) const;
  /// Returns the view for the sum of `slice` over this host. It has the accumulator type: for half precision
  /// it is scratch memory, otherwise `slice` itself.
  View partial_of(const View& slice, std::int64_t number);
  /// Returns scratch memory for the partial sum of `shard` received from `host`, in the accumulator type.
  View incoming(const ConstView& shard, int host);

  /// Returns the location of node leader `leader`'s slice of chunk `number` in the buffer of `local_rank`.
  View slice_in_segment(const ConstView& slice, int local_rank, std::int64_t number, int leader) const;
  /// Returns the location of the piece that belongs to rank `of` in the buffer of `local_rank`. The buffer
  /// has room for one piece per rank of the group.
  View piece_in_segment(const ConstView& piece, int local_rank, std::int64_t number, int of) const;

  template <class F>
  void for_each_other_host(F&& f) const;

  CheckedLinks links_;
  const HierarchicalLayout layout_;
  std::unique_ptr<SharedSegment> segment_;
  const std::size_t chunk_bytes_;
  std::array<std::vector<char>, 2> partials_;  // one is sent while the next one is summed
  std::vector<char> incoming_;
  std::uint64_t checksum_of_sum_ = 0;  // of this rank's shard of the chunk that was summed last
};

/// Returns a HierarchicalTransport of all ranks. Collective call; `exchange` must connect all ranks. Throws
/// PeerError on all ranks if one of them fails.
std::unique_ptr<Transport> make_hierarchical_transport(std::unique_ptr<MessageLinks> links,
                                                       std::span<const int> host_of_rank,
                                                       const TextExchange& exchange, std::size_t chunk_bytes);

}  // namespace convoy::dist
