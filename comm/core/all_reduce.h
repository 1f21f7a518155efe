// The algorithms of collectives by messages, and the choice between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace convoy::dist {

/// An algorithm of the collectives between ranks that exchange messages (comm/transport/README.md). Its order of
/// additions is fixed.
enum class AllReduce : std::uint8_t {
  direct,            // each rank sums one shard and sends the sum to all others
  ring,              // partial sums of shards travel from rank to rank
  halving_doubling,  // ranks exchange halves, quarters, …
  tree,              // everything travels along a binomial tree to rank 0 and back
  automatic          // AllReduceOptions::algorithm_for()
};

/// The names of the algorithms, in the order of AllReduce.
inline constexpr std::array kAllReduceNames = {"direct", "ring", "halving-doubling", "tree", "auto"};
/// Returns the name of the algorithm.
constexpr const char* to_string(AllReduce algorithm) {
  return kAllReduceNames[static_cast<std::size_t>(algorithm)];
}

/// The algorithm of an all-reduce, or how to choose it. Must be equal on all ranks.
struct AllReduceOptions {
  /// With at most this many ranks, `automatic` is `direct`, which adds in the order of shared memory.
  static constexpr int kMaxDirectRanks = 8;

  AllReduce algorithm = AllReduce::automatic;  ///< the algorithm, or automatic: it is chosen
  double latency_us = 30;                      // of a message, with the work of its sender and its receiver
  double gb_per_s = 1;                         // of messages between two ranks
  int hosts = 1;                               // of all ranks

  /// Returns the algorithm that all-reduces `bytes` on `ranks` ranks. With `automatic` and more than kMaxDirectRanks
  /// ranks, it is the fastest one if a message of b bytes takes latency + b / bandwidth.
  AllReduce algorithm_for(int ranks, std::size_t bytes) const;
  /// Returns whether ranks exchange messages with sparse_peers() alone.
  bool is_sparse(int ranks) const { return algorithm_for(ranks, 0) != AllReduce::direct; }
  /// Returns the other ranks with which `rank` exchanges messages, in ascending order.
  std::vector<int> peers(int rank, int ranks) const;
};

}  // namespace convoy::dist
