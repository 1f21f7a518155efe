// Who does what where ranks are of several hosts.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace convoy {

/// Hosts count in the order of their first ranks, the ranks of a host in their order; the numbers of either
/// need not follow each other. As seen by one of the ranks.
class HierarchicalLayout {
 public:
  /// `host_of_rank`: any numbers, by rank; equal ones are of one host.
  HierarchicalLayout(std::span<const int> host_of_rank, int rank);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(places_.size()); }
  int hosts() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks_of(int host) const { return ranks_[static_cast<std::size_t>(host)]; }
  int host_of(int rank) const { return places_[static_cast<std::size_t>(rank)].host; }
  int local_of(int rank) const { return places_[static_cast<std::size_t>(rank)].local; }

  // This rank's.
  int host() const { return host_of(rank_); }
  int local() const { return local_of(rank_); }
  const std::vector<int>& neighbours() const { return ranks_of(host()); }  // itself included

  /// How many ranks of each host exchange sums with other hosts: its first ones, and as many as the host with
  /// the fewest ranks has, so that each has one counterpart on every host.
  int carriers() const { return carriers_; }
  bool carries() const { return local() < carriers_; }
  /// The rank of a host that stands for a rank of another one there. Spread over the host's ranks.
  int proxy_of(int rank, int host) const;

 private:
  struct Place {
    int host;
    int local;
  };
  int rank_;
  int carriers_ = 0;
  std::vector<Place> places_;            // by rank
  std::vector<std::vector<int>> ranks_;  // by host
};

}  // namespace convoy
