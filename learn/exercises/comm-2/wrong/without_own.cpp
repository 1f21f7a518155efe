// The rank that adds forgets its own contribution.
#include <span>
#include <vector>

#include "links.h"

// Part `number` of as many parts as there are ranks. The parts differ by at most one float.
std::span<float> part(links::Rank& rank, std::span<float> data, int number) {
  const std::size_t n = rank.size(), begin = data.size() * number / n, end = data.size() * (number + 1) / n;
  return data.subspan(begin, end - begin);
}

void all_reduce(links::Rank& rank, std::span<float> data) {
  const int n = rank.size(), me = rank.rank();
  const std::span<float> own = part(rank, data, me);
  std::vector<std::vector<float>> received(n, std::vector<float>(own.size()));
  for (int other = 0; other < n; ++other) {
    if (other == me) continue;
    rank.start_send(other, part(rank, data, other));
    rank.start_receive(other, received[other]);
  }
  rank.wait();
  for (std::size_t i = 0; i < own.size(); ++i) {
    own[i] = received[0][i];
    for (int other = 1; other < n; ++other) own[i] += received[other][i];
  }
  for (int other = 0; other < n; ++other) {
    if (other == me) continue;
    rank.start_send(other, own);
    rank.start_receive(other, part(rank, data, other));
  }
  rank.wait();
}
