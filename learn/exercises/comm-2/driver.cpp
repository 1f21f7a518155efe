#include "program.h"

void lesson::run(Case& at) {
  const int ranks = at.size(0), floats = at.size(1);
  std::vector<std::vector<float>> before(ranks), after;
  std::vector<double> exact(floats, 0);
  for (std::vector<float>& each : before)  // sums of these are rounded
    for (int i = 0; i < floats; ++i) {
      each.push_back(static_cast<float>(at.next() % 1000000 + 1) / 999983);
      exact[i] += static_cast<double>(each[i]);
    }
  after = before;
  std::vector<links::Counts> counts;
  try {
    counts = links::run(ranks, {}, [&](links::Rank& rank) { all_reduce(rank, after[rank.rank()]); });
  } catch (const links::Mismatch& error) {
    at.find("CE401", "%s", error.what());
  }
  for (int rank = 0; rank < ranks; ++rank)
    for (int i = 0; i < floats; ++i) {
      const double actual = static_cast<double>(after[rank][i]),
                   own = static_cast<double>(before[i * ranks / floats][i]);
      if (std::fabs(actual - exact[i]) > 1e-5 * exact[i])
        at.fail("rank %d has %g at %d, expected %g%s", rank, actual, i, exact[i],
                std::fabs(actual - exact[i] + own) < 1e-5
                    ? ": the contribution of the rank that adds is missing"
                    : "");
    }
  int different = 0, first_rank = 0, first = 0;
  for (int rank = ranks - 1; rank > 0; --rank)
    for (int i = floats; i-- > 0;)
      if (after[rank][i] != after[0][i]) ++different, first_rank = rank, first = i;
  if (different > 0)
    at.find("CE404",
            "rank %d has %.9g at %d, rank 0 has %.9g: each rank adds in an order of its own; %d sums differ",
            first_rank, static_cast<double>(after[first_rank][first]), first,
            static_cast<double>(after[0][first]), different);
  double sent = 0;
  for (const links::Counts& each : counts) sent = std::max(sent, static_cast<double>(each.bytes_sent));
  at.count("bytes_sent_by_one_rank", sent);
}
