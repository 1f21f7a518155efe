#include "program.h"

// The weight after the steps, from the sums of its gradients. Exact: integers, divided by small powers of
// two.
static float weight_after(float weight, const std::vector<float>& sums, bool has_momentum) {
  float velocity = 0;
  for (float sum : sums) {
    velocity = (has_momentum ? velocity / 2 : 0) + sum;
    weight -= velocity / 4;
  }
  return weight;
}

void lesson::run(Case& at) {
  const int ranks = at.size(0), floats = at.size(1), steps = at.size(2);
  const std::vector<float> before = at.values(floats);
  std::vector<std::vector<float>> after(ranks, before), velocity(ranks);
  std::vector<std::vector<std::vector<float>>> gradients(ranks);
  for (auto& of_rank : gradients)
    for (int i = 0; i < steps; ++i) of_rank.push_back(at.values(floats));
  const auto given = gradients;
  std::vector<links::Counts> counts;
  try {
    counts = links::run(ranks, {}, [&](links::Rank& rank) {
      for (int i = 0; i < steps; ++i)
        step(rank, after[rank.rank()], gradients[rank.rank()][i], velocity[rank.rank()]);
    });
  } catch (const links::Mismatch& error) {
    at.find("CE401", "%s", error.what());
  }
  for (int rank = 0; rank < ranks; ++rank)
    for (int i = 0; i < floats; ++i) {
      std::vector<float> sums, own;
      for (int each = 0; each < steps; ++each) {
        own.push_back(given[rank][each][i]);
        sums.push_back(0);
        for (int other = 0; other < ranks; ++other) sums.back() += given[other][each][i];
      }
      const float expected = weight_after(before[i], sums, true), found = after[rank][i];
      if (found == expected) continue;
      at.fail("weight %d of rank %d is %g, expected %g%s", i, rank, static_cast<double>(found),
              static_cast<double>(expected),
              found == before[i]                              ? ": as before the first step"
              : found == weight_after(before[i], own, true)   ? ": stepped by the gradients of this rank only"
              : found == weight_after(before[i], sums, false) ? ": without the velocity of earlier steps"
                                                              : "");
    }
  double sent = 0, stored = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    sent = std::max(sent, static_cast<double>(counts[rank].bytes_sent));
    stored = std::max(stored, static_cast<double>(velocity[rank].size()));
  }
  at.count("floats_of_velocity", stored);
  at.count("bytes_sent_by_one_rank", sent);
}
