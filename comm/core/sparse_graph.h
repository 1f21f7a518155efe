// The graphs along which the messages of collectives travel when not all ranks exchange messages with all others.
#pragma once

#include <vector>

namespace convoy::dist {

/// A rank's place in the binomial tree over `size` ranks with root `root`, which numbers them from the root on. The parent
/// of a rank has the same number without its lowest bit. So a rank and those below it have consecutive numbers, and the
/// tree has log2(size) levels.
struct BinomialTree {
  BinomialTree(int rank, int size, int root = 0);

  int parent = -1;            // -1: this rank is the root
  std::vector<int> children;  // in ascending order of their numbers
};

/// Returns n, n / 2, n / 4, …, 1, rounded up: the distances of recursive halving.
std::vector<int> halvings_of(int n);

/// Returns the other ranks with which `rank` exchanges messages in any of the sparse algorithms, in ascending order: at
/// most 4 log2(size). A rank is a peer of its peers.
std::vector<int> sparse_peers(int rank, int size);

}  // namespace convoy::dist
