#include "program.h"

void lesson::run(Case& at) {
  const int ranks = at.size(0), floats = at.size(1);
  const float limit = static_cast<float>(at.size(2));
  std::vector<std::vector<float>> before, after;
  std::vector<double> squares(ranks, 0);
  double all = 0, sum_of_norms = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    before.push_back(at.values(floats));
    for (float value : before[rank]) squares[rank] += static_cast<double>(value * value);
    all += squares[rank];
    sum_of_norms += std::sqrt(squares[rank]);
  }
  after = before;
  std::vector<float> norms(ranks);
  std::vector<links::Counts> counts;
  try {
    counts = links::run(
        ranks, {}, [&](links::Rank& rank) { norms[rank.rank()] = clip(rank, after[rank.rank()], limit); });
  } catch (const links::Mismatch& error) {
    at.find("CE401", "%s", error.what());
  }
  const double expected = std::sqrt(all), factor = expected > limit ? limit / expected : 1;
  double sent = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double norm = norms[rank];
    const auto is = [norm](double other) { return std::fabs(norm - other) < 1e-4 * other; };
    if (!is(expected))
      at.fail("rank %d returns the norm %g, expected %g%s", rank, norm, expected,
              is(std::sqrt(squares[rank])) ? ": that of its own part"
              : is(sum_of_norms)           ? ": the sum of the norms of all parts"
              : is(all)                    ? ": without the root"
                                           : "");
    if (norms[rank] != norms[0])
      at.find("CE404", "rank %d has the norm %.9g, rank 0 has %.9g", rank, norm,
              static_cast<double>(norms[0]));
    for (int i = 0; i < floats; ++i) {
      const double value = after[rank][i], right = before[rank][i] * factor;
      if (std::fabs(value - right) > 1e-4 * std::fabs(right))
        at.fail("rank %d has %g at %d, expected %g%s", rank, value, i, right,
                factor == 1 ? ": a norm below the limit needs no change" : "");
    }
    sent = std::max(sent, static_cast<double>(counts[rank].bytes_sent));
  }
  at.count("bytes_sent_by_one_rank", sent);
}
