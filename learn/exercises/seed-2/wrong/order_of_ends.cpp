// Each task adds its sum to the total when it ends.
#include <algorithm>
#include <vector>

#include "team.h"

Number sum(const std::vector<Number>& x, Team& team) {
  const std::size_t block = 256, blocks = (x.size() + block - 1) / block;
  std::vector<Number> sums(blocks);
  Number total;
  team.run(static_cast<int>(blocks), [&](int task) {
    const std::size_t begin = task * block, end = std::min(begin + block, x.size());
    for (std::size_t i = begin; i < end; ++i) sums[task] += x[i];
    total += sums[task];  // and a lock
  });
  return total;
}
