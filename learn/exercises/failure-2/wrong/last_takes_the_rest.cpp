// The last rank takes what is left.
#include <algorithm>
#include <span>
#include <vector>

std::vector<int> samples(std::span<const int> order, int position, int batch, int rank, int ranks) {
  const int count = std::min(batch, static_cast<int>(order.size()) - position);
  const int begin = position + count / ranks * rank,
            end = rank == ranks - 1 ? position + count : position + count / ranks * (rank + 1);
  return {order.begin() + begin, order.begin() + end};
}
