#include "convoy/comm/core/all_reduce.h"

#include <algorithm>
#include <utility>

#include "convoy/comm/core/sparse_graph.h"

namespace convoy::dist {

AllReduce AllReduceOptions::algorithm_for(int ranks, std::size_t bytes) const {
  if (algorithm != AllReduce::automatic) return algorithm;
  if (ranks <= kMaxDirectRanks) return AllReduce::direct;
  const double n = ranks, steps = static_cast<double>(halvings_of(ranks).size() - 1);
  const double whole = static_cast<double>(bytes) / (1e3 * gb_per_s),
               shards = (n - 1) / n * whole;  // microseconds
  // All ranks of a host send to other hosts at the same time, but one of a ring.
  const double sharing = hosts > 1 ? n / hosts : 1;
  // In a step of a tree a rank sends or receives; of the others, it does both.
  const std::pair<double, AllReduce> by_time[] = {
      {2 * steps * (latency_us + whole), AllReduce::tree},
      {2 * (steps * 2 * latency_us + shards * sharing), AllReduce::halving_doubling},
      {2 * ((n - 1) * 2 * latency_us + shards), AllReduce::ring}};
  return std::min_element(std::begin(by_time), std::end(by_time))->second;
}

std::vector<int> AllReduceOptions::peers(int rank, int ranks) const {
  if (is_sparse(ranks)) return sparse_peers(rank, ranks);
  std::vector<int> others;
  for (int other = 0; other < ranks; ++other)
    if (other != rank) others.push_back(other);
  return others;
}

}  // namespace convoy::dist
