#include "program.h"

void lesson::run(Case& at) {
  const int ranks = at.size(0), floats = at.size(1);
  std::vector<std::vector<float>> before, after;
  std::vector<float> expected(floats, 0);
  for (int rank = 0; rank < ranks; ++rank) {
    before.push_back(at.values(floats));
    for (int i = 0; i < floats; ++i) expected[i] += before[rank][i];
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
      if (after[rank][i] == expected[i]) continue;
      int parts = 0;  // ranks that have the right sum here
      for (int other = 0; other < ranks; ++other) parts += after[other][i] == expected[i];
      char why[80] = "";
      if (after[rank][i] == before[rank][i] && parts == 0)
        std::snprintf(why, sizeof why, ": its own value, which was not added");
      else if (parts > 0)
        std::snprintf(why, sizeof why, ": the sum of %d of %d ranks is right here", parts, ranks);
      at.fail("rank %d has %g at %d%s, expected %g%s", rank, static_cast<double>(after[rank][i]), i,
              i == floats - 1 ? ", the last float" : "", static_cast<double>(expected[i]), why);
    }
  double busiest = 0, sum = 0, sent = 0;
  for (const links::Counts& each : counts) {
    const double bytes = static_cast<double>(each.bytes_sent + each.bytes_received);
    busiest = std::max(busiest, bytes);
    sum += bytes;
    sent = std::max(sent, static_cast<double>(each.bytes_sent));
  }
  at.count("busiest_over_average", sum > 0 ? busiest * ranks / sum : 1);
  at.count("bytes_sent_by_one_rank", sent);
}
