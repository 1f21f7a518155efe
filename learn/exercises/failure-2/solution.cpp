#include <algorithm>
#include <span>
#include <vector>

std::vector<int> samples(std::span<const int> order, int position, int batch, int rank, int ranks) {
  const int count = std::min(batch, static_cast<int>(order.size()) - position);
  const int begin = position + count * rank / ranks, end = position + count * (rank + 1) / ranks;
  return {order.begin() + begin, order.begin() + end};
}
