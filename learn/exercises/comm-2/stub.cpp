#include <span>
#include <vector>

#include "links.h"

// Part `number` of as many parts as there are ranks. The parts differ by at most one float.
std::span<float> part(links::Rank& rank, std::span<float> data, int number) {
  const std::size_t n = rank.size(), begin = data.size() * number / n, end = data.size() * (number + 1) / n;
  return data.subspan(begin, end - begin);
}

// Replaces `data`, on each rank, by the sum over all ranks: the same bits on all of them.
//
// Here each rank gets all arrays, and begins with its own. TODO: rank r adds part r of all ranks, in the order of the
// ranks, and sends it to the others.
void all_reduce(links::Rank& rank, std::span<float> data) {
  const int n = rank.size(), me = rank.rank();
  std::vector<std::vector<float>> received(n, std::vector<float>(data.begin(), data.end()));
  for (int other = 0; other < n; ++other) {
    if (other == me) continue;
    rank.start_send(other, data);
    rank.start_receive(other, received[other]);
  }
  rank.wait();
  for (int other = 0; other < n; ++other)
    for (std::size_t i = 0; i < data.size(); ++i)
      if (other != me) data[i] += received[other][i];
}
