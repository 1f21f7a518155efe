#include "program.h"

static double end_of(const std::vector<double>& ready, const std::vector<double>& bytes,
                     const std::vector<int>& buckets, double alpha, double beta) {
  double end = 0;
  std::size_t gradient = 0;
  for (int count : buckets) {
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += bytes[gradient++];
    end = std::max(ready[gradient - 1], end) + alpha + beta * sum;
  }
  return end;
}

void lesson::run(Case& at) {
  const double alpha = at.size(0) * 1e-6, beta = 2 * 63.0 / 64 / 4e9;
  std::vector<double> ready, bytes;
  for (const int kilobytes : {4000, 2000, 2000, 1000, 1000, 500, 500, 250, 250, 100, 100, 50}) {
    bytes.push_back(kilobytes * 1e3 + at.next() % 1000);
    ready.push_back(1e-3 * static_cast<double>(bytes.size()));
  }
  const std::vector<int> buckets = plan(ready, bytes, alpha, beta);
  int total = 0;
  for (int count : buckets) {
    if (count <= 0) at.fail("found a bucket of %d gradients", count);
    total += count;
  }
  if (total != 12) at.fail("the buckets have %d gradients, expected 12", total);
  double best = end_of(ready, bytes, {12}, alpha, beta);
  for (int cuts = 0; cuts < 2048; ++cuts) {
    std::vector<int> each = {1};
    for (int i = 0; i < 11; ++i) {
      if ((cuts >> i & 1) != 0)
        each.push_back(1);
      else
        ++each.back();
    }
    best = std::min(best, end_of(ready, bytes, each, alpha, beta));
  }
  at.count("exposed_over_best",
           (end_of(ready, bytes, buckets, alpha, beta) - ready.back()) / (best - ready.back()));
}
