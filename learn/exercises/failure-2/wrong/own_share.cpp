// Each rank goes through a share of the epoch of its own.
#include <algorithm>
#include <span>
#include <vector>

std::vector<int> samples(std::span<const int> order, int position, int batch, int rank, int ranks) {
  const int size = static_cast<int>(order.size()), share = size / ranks;
  const int begin = share * rank + position / ranks,
            end = std::min(begin + batch / ranks, share * (rank + 1));
  return {order.begin() + begin, order.begin() + std::max(begin, end)};
}
