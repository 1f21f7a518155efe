// The placement of ranks on hosts, and the roles that follow from it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace convoy::dist {

/// The hosts of all ranks, as seen by one rank. Hosts are numbered in the order of their lowest ranks. The
/// local rank of a rank is its position among the ranks of its host. The ranks of a host need not be
/// consecutive.
///
/// A node leader is a rank that exchanges sums with other hosts. Every host has the same number of node
/// leaders: as many as the host with the fewest ranks has ranks. So each node leader has one peer on every
/// other host, the node leader with the same local rank.
class HierarchicalLayout {
 public:
  /// `host_of_rank` contains an arbitrary number per rank; ranks with equal numbers share a host. `rank` is
  /// the calling rank.
  HierarchicalLayout(std::span<const int> host_of_rank, int rank);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(locations_.size()); }
  /// Returns the number of hosts.
  int hosts() const { return static_cast<int>(ranks_.size()); }
  /// Returns the ranks of `host`, in ascending order.
  const std::vector<int>& ranks_of(int host) const { return ranks_[static_cast<std::size_t>(host)]; }
  int host_of(int rank) const { return locations_[static_cast<std::size_t>(rank)].host; }
  int local_rank_of(int rank) const { return locations_[static_cast<std::size_t>(rank)].local_rank; }

  /// Returns the host of this rank.
  int host() const { return host_of(rank_); }
  int local_rank() const { return local_rank_of(rank_); }
  /// Returns the ranks of this rank's host, including this rank.
  const std::vector<int>& host_ranks() const { return ranks_of(host()); }

  /// Returns the number of node leaders of each host: the ranks with the lowest local ranks.
  int leaders_per_host() const { return leaders_per_host_; }
  /// Returns whether all hosts have equally many ranks.
  bool is_even() const { return static_cast<std::size_t>(leaders_per_host_ * hosts()) == locations_.size(); }
  /// Returns whether this rank is a node leader.
  bool is_leader() const { return local_rank() < leaders_per_host_; }
  /// Returns the rank of `host` that exchanges messages with `rank` of another host: the one with the same
  /// local rank, modulo the number of ranks of `host`. This spreads messages over the ranks of a host.
  int peer_of(int rank, int host) const;

  /// Returns the size of a pipelined chunk: 2 MiB, which the caches hold, or more if messages between hosts
  /// would be shorter than 64 KiB; at most 16 MiB. A message is one node leader's slice for one host.
  std::size_t default_chunk_bytes() const;
  /// Returns the size of a chunk of a communicator for texts: 64 KiB, or less if a host has so many ranks that
  /// its chunks would take more than 2 MiB.
  std::size_t small_chunk_bytes() const;

 private:
  struct Location {
    int host;
    int local_rank;
  };
  int rank_;
  int leaders_per_host_ = 0;
  std::vector<Location> locations_;      // by rank
  std::vector<std::vector<int>> ranks_;  // by host
};

}  // namespace convoy::dist
