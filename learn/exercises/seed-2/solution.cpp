#include <algorithm>
#include <vector>

#include "team.h"

Number sum(const std::vector<Number>& x, Team& team) {
  const std::size_t block = 256, blocks = (x.size() + block - 1) / block;
  std::vector<Number> sums(blocks);
  team.run(static_cast<int>(blocks), [&](int task) {
    const std::size_t begin = task * block, end = std::min(begin + block, x.size());
    for (std::size_t i = begin; i < end; ++i) sums[task] += x[i];
  });
  Number total;
  for (const Number& each : sums) total += each;
  return total;
}
