#include "program.h"

void lesson::run(Case& at) {
  const int ranks = at.size(0);
  std::vector<Moments> own, found(ranks);
  std::vector<double> all;
  double mean_of_variances = 0, mean_of_means = 0, within = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const int count = ranks >= 3 && rank == ranks - 2 ? 0 : 4 + 3 * rank;
    double mean = 0, variance = 0;
    std::vector<double> numbers;
    for (int i = 0; i < count; ++i) {
      numbers.push_back(at.size(1) + 0.25 * rank + at.next() * 0x1p-22);  // 0 to 4
      mean += numbers.back() / count;
    }
    for (double each : numbers) variance += (each - mean) * (each - mean) / count;
    own.push_back({static_cast<float>(count), static_cast<float>(mean), static_cast<float>(variance)});
    all.insert(all.end(), numbers.begin(), numbers.end());
    mean_of_means += mean / ranks, mean_of_variances += variance / ranks, within += variance * count;
  }
  double mean = 0, variance = 0;
  for (double each : all) mean += each / all.size();
  for (double each : all) variance += (each - mean) * (each - mean) / all.size();
  within /= all.size();

  std::vector<links::Counts> counts;
  try {
    counts = links::run(ranks, {},
                        [&](links::Rank& rank) { found[rank.rank()] = synchronize(rank, own[rank.rank()]); });
  } catch (const links::Mismatch& error) {
    at.find("CE401", "%s", error.what());
  }
  double sent = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const double of_mean = found[rank].mean, of_variance = found[rank].variance;
    const auto is = [](double a, double b) { return std::fabs(a - b) <= 2e-3 * std::fabs(b) + 1e-6; };
    if (!(std::fabs(of_mean - mean) <= 1e-6 * mean + 1e-4))
      at.fail("rank %d has the mean %g, expected %g%s", rank, of_mean, mean,
              std::isnan(of_mean)                         ? ": a rank has no numbers"
              : std::fabs(of_mean - mean_of_means) < 1e-3 ? ": each rank counts equally"
              : of_mean == own[rank].mean                 ? ": that of its own numbers"
                                                          : "");
    if (!is(of_variance, variance))
      at.fail("rank %d has the variance %g, expected %g%s", rank, of_variance, variance,
              is(of_variance, within) || is(of_variance, mean_of_variances)
                  ? ": the distances of the ranks' means are missing"
              : at.size(1) >= 1000 ? ": digits are lost, as large numbers are subtracted"
                                   : "");
    if (found[rank].mean != found[0].mean || found[rank].variance != found[0].variance)
      at.find("CE404", "rank %d has the variance %.9g, rank 0 has %.9g", rank, of_variance,
              static_cast<double>(found[0].variance));
    sent = std::max(sent, static_cast<double>(counts[rank].bytes_sent));
  }
  at.count("bytes_sent_by_one_rank", sent);
}
