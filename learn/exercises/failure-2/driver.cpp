#include <algorithm>
#include <numeric>

#include "program.h"

void lesson::run(Case& at) {
  const int n = at.size(0), batch = at.size(1);
  std::vector<int> order(n), times(n, 0);
  std::iota(order.begin(), order.end(), 0);
  for (int i = n; i > 1; --i) std::swap(order[i - 1], order[at.next() % i]);
  int step = 0;
  for (int position = 0; position < n; position += batch, ++step) {
    const int ranks = (const int[]){4, 4, 3, 1, 5, 2}[step % 6], end = std::min(position + batch, n);
    std::vector<int> taken;
    std::size_t fewest = n, most = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::vector<int> own = samples(order, position, batch, rank, ranks);
      fewest = std::min(fewest, own.size());
      most = std::max(most, own.size());
      taken.insert(taken.end(), own.begin(), own.end());
    }
    for (int sample : taken) {
      if (sample < 0 || sample >= n) at.fail("step %d with %d ranks takes sample %d", step, ranks, sample);
      if (++times[sample] > 1)
        at.fail("step %d with %d ranks takes sample %d, which the epoch has had before", step, ranks, sample);
    }
    for (int i = position; i < end; ++i)
      if (times[order[i]] == 0)
        at.fail("step %d with %d ranks takes %d samples, expected %d: sample %d is missing", step, ranks,
                static_cast<int>(taken.size()), end - position, order[i]);
    if (most > fewest + 1)
      at.fail("step %d: one of %d ranks takes %d samples, another one %d", step, ranks,
              static_cast<int>(most), static_cast<int>(fewest));
  }
}
