// Collectives on the ranks of links.h, all as rings (chapter 16). Each rank calls them with arrays of equal
// sizes.
#pragma once

#include "links.h"

namespace links {

/// Returns part `number` of `count` parts of an array. The parts differ by at most one float.
inline std::span<float> part(std::span<float> data, int number, int count) {
  const std::size_t n = count, begin = data.size() * number / n, end = data.size() * (number + 1) / n;
  return data.subspan(begin, end - begin);
}

/// Adds an array over all ranks. Returns this rank's part of the sum, part(data, rank, size). The other parts
/// of `data` are overwritten.
inline std::span<float> reduce_scatter(Rank& rank, std::span<float> data) {
  const int n = rank.size(), me = rank.rank();
  std::vector<float> received(data.size() / n + 1);
  for (int step = 1; step < n; ++step) {
    const std::span<float> sum = part(data, (me - step - 1 + 2 * n) % n, n);
    rank.exchange((me + 1) % n, part(data, (me - step + n) % n, n), (me + n - 1) % n,
                  std::span(received).first(sum.size()));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += received[i];
  }
  return part(data, me, n);
}

/// Completes an array, of which each rank has its part.
inline void all_gather(Rank& rank, std::span<float> data) {
  const int n = rank.size(), me = rank.rank();
  for (int step = 0; step < n - 1; ++step)
    rank.exchange((me + 1) % n, part(data, (me - step + n) % n, n), (me + n - 1) % n,
                  part(data, (me - step - 1 + n) % n, n));
}

/// Adds an array over all ranks. Each rank gets the sum.
inline void all_reduce(Rank& rank, std::span<float> data) {
  reduce_scatter(rank, data);
  all_gather(rank, data);
}

}  // namespace links
