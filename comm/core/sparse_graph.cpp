#include "convoy/comm/core/sparse_graph.h"

#include <set>

namespace convoy::dist {

BinomialTree::BinomialTree(int rank, int size, int root) {
  const int number = (rank - root + size) % size;
  if (number > 0) parent = ((number & (number - 1)) + root) % size;
  for (int bit = 1; (number & bit) == 0 && number + bit < size; bit *= 2)
    children.push_back((number + bit + root) % size);
}

std::vector<int> halvings_of(int n) {
  std::vector<int> halvings = {n};
  while (halvings.back() > 1) halvings.push_back((halvings.back() + 1) / 2);
  return halvings;
}

std::vector<int> sparse_peers(int rank, int size) {
  std::vector<int> distances = halvings_of(size);
  for (int bit = 1; bit < size; bit *= 2) distances.push_back(bit);  // of trees with any root; 1: of the ring
  std::set<int> peers;
  for (const int distance : distances) {
    peers.insert((rank + distance) % size);
    peers.insert((rank + size - distance) % size);
  }
  peers.erase(rank);
  return {peers.begin(), peers.end()};
}

}  // namespace convoy::dist
