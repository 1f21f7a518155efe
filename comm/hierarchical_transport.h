// Collectives of several hosts: through shared memory inside each, by messages between them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/hierarchical_layout.h"
#include "comm/message_links.h"
#include "comm/shm_communicator.h"
#include "comm/shm_window.h"
#include "comm/transport.h"

namespace convoy {

/// A sum is made in two steps: of each host's ranks, in their order, and of the hosts' sums, in the order of
/// hosts; in f32 where the data is f16 or bf16, and rounded after the second. Between hosts travels what a
/// host has summed, once, instead of what each of its ranks has.
///
/// An all-reduce goes in chunks, each cut into as many slices as every host has carriers
/// (HierarchicalLayout). Of its slice a carrier sums what the ranks of its host have, exchanges that with its
/// counterparts, each of which adds up the hosts' sums of a share of the slice and gives it to the others,
/// and puts the whole where its host finds it. All of a host's carriers send at once, each over connections
/// of its own; where some host has one rank alone, one of each host does.
///
/// Fingerprints go from each rank to each rank of other hosts, not by way of one that speaks for its host: so
/// all know by themselves who is missing.
class HierarchicalTransport final : public Transport {
 public:
  /// `links`: of all ranks. `window`: of this rank's host. `chunk_bytes`: the same on all ranks, no more than
  /// the window's, and a multiple of 64 for each rank.
  HierarchicalTransport(std::unique_ptr<MessageLinks> links, HierarchicalLayout layout,
                        std::unique_ptr<ShmWindow> window, std::size_t chunk_bytes);

  std::string name() const override { return "shm+" + links_->name(); }
  int rank() const override { return links_->rank(); }
  int size() const override { return links_->size(); }

  void start() override;
  void all_reduce(const Call& call, View data) override;
  void reduce_scatter(const Call& call, ConstView in, View out) override;
  void broadcast(const Call& call, View data) override;
  void all_gather(const Call& call, ConstView in, View out) override;
  void barrier(const Call& call) override { enter(call); }
  std::vector<std::string> gather(const Call& call, const std::string& mine) override;
  std::unique_ptr<Transport> split(const Call& call, int color) override;
  void finish(const Call& call) override;
  void abort(const std::string& reason) noexcept override;

 private:
  /// Until when to wait inside the host for data: longer than anybody waits for another host, so that who
  /// waits for a neighbour that waits for another host hears which one.
  Deadline enter(const Call& call);
  void meet_inside(const Deadline& inside);

  // An all-reduce. `number`: of the chunk.
  void reduce_inside(const Call& call, const View& chunk, std::int64_t number, const Deadline& inside);
  void begin_to_exchange_partials(const View& chunk, std::int64_t number);
  void begin_to_exchange_sums(const View& chunk);
  void reduce_between(const Call& call, const View& chunk, std::int64_t number);
  void spread_inside(const View& chunk, std::int64_t number, const Deadline& inside);

  std::size_t slice_bytes(std::size_t chunk_bytes) const;
  View slice_of(const View& chunk, int carrier) const;
  template <class AnyView>
  AnyView share_of(const AnyView& slice, int host) const;
  /// My host's sum of my slice, which may still be wider than the slice.
  View partial_of(const View& slice, std::int64_t number);
  /// Of as many elements as `share`, from that host, of the type of a sum.
  View incoming(const ConstView& share, int host);

  /// The place of a carrier's slice of a chunk, in the window of a rank of this host.
  View slice_in_window(const ConstView& slice, int local, std::int64_t number, int carrier) const;
  /// A piece of rank `of`'s part, in the window of a rank of this host: where pieces of all parts lie.
  View piece_in_window(const ConstView& piece, int local, std::int64_t number, int of) const;

  void send(int to, const ConstView& view);
  void receive(int from, const View& view);
  template <class F>
  void for_each_other_host(F&& f) const;

  std::unique_ptr<MessageLinks> links_;
  const HierarchicalLayout layout_;
  std::unique_ptr<ShmWindow> window_;
  const std::size_t chunk_bytes_;
  std::uint64_t entered_ = 0;                  // collectives
  std::array<std::vector<char>, 2> partials_;  // one may travel while the next is summed
  std::vector<char> incoming_;
};

/// Every rank, together. `exchange` is among all of them. PeerError on all where one cannot.
std::unique_ptr<Transport> make_hierarchical_transport(std::unique_ptr<MessageLinks> links,
                                                       std::span<const int> host_of_rank,
                                                       const TextExchange& exchange, std::size_t chunk_bytes);

}  // namespace convoy
