// Floats after the last whole part are forgotten.
#include <span>
#include <vector>

#include "links.h"

// Part `number` of as many parts as there are ranks. The parts differ by at most one float.
std::span<float> part(links::Rank& rank, std::span<float> data, int number) {
  const std::size_t n = rank.size(), begin = data.size() / n * number, end = begin + data.size() / n;
  return data.subspan(begin, end - begin);
}

void all_reduce(links::Rank& rank, std::span<float> data) {
  const int n = rank.size(), me = rank.rank(), right = (me + 1) % n, left = (me + n - 1) % n;
  if (n == 1) return;
  std::vector<float> received(data.size());
  for (int step = 0; step < n - 1; ++step) {
    const std::span<float> out = part(rank, data, (me - step + n) % n);
    const std::span<float> sum = part(rank, data, (me - step - 1 + n) % n);
    rank.exchange(right, out, left, std::span(received).first(sum.size()));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += received[i];
  }
  for (int step = 0; step < n - 1; ++step)
    rank.exchange(right, part(rank, data, (me + 1 - step + n) % n), left,
                  part(rank, data, (me - step + n) % n));
}
