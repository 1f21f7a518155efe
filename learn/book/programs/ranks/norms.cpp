// Trains a small network with batch norm, whose statistics are those of all samples of a batch or of parts of
// it, as on several ranks.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "../../../common/philox.h"

const int kHidden = 16, kBatch = 64, kSteps = 1500, kTest = 1000, kSeeds = 10;

// A number from -1 to 1: a function of the seed, of what it is for, and of two places.
double draw(std::uint32_t seed, std::uint32_t what, std::uint32_t a, std::uint32_t b) {
  return philox({a, b, what, 0}, {seed, 18})[0] * 0x1p-31 - 1;
}

struct Sample {
  double x, y, target;
};

// Inside of a ring or not.
Sample sample(std::uint32_t seed, std::uint32_t what, std::uint32_t a, std::uint32_t b) {
  const double x = draw(seed, what, a, 2 * b), y = draw(seed, what, a, 2 * b + 1), r = x * x + y * y;
  return {x, y, 0.2 < r && r < 0.8 ? 1.0 : -1.0};
}

struct Network {
  double w[kHidden][2], weight[kHidden], bias[kHidden], out[kHidden] = {}, constant = 0;
  double mean[kHidden] = {}, variance[kHidden] = {};  // running statistics
};

// One step. The batch is divided over `ranks`, each of which normalizes by its own samples.
void train(Network& n, const std::vector<Sample>& batch, int ranks, double rate, int step) {
  const int size = kBatch / ranks;
  Network slope = {};
  std::vector<double> h(kBatch * kHidden), z(h.size()), root(ranks * kHidden), before(h.size());
  const double part = std::max(0.05, 1.0 / step);  // of the running statistics
  for (int j = 0; j < kHidden; ++j) {
    double means = 0, variances = 0, squares = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      double mean = 0, variance = 0;
      for (int i = rank * size; i < (rank + 1) * size; ++i)
        mean += (h[i * kHidden + j] = n.w[j][0] * batch[i].x + n.w[j][1] * batch[i].y) / size;
      for (int i = rank * size; i < (rank + 1) * size; ++i)
        variance += (h[i * kHidden + j] - mean) * (h[i * kHidden + j] - mean) / size;
      root[rank * kHidden + j] = std::sqrt(variance + 1e-5);
      for (int i = rank * size; i < (rank + 1) * size; ++i)
        z[i * kHidden + j] = (h[i * kHidden + j] - mean) / root[rank * kHidden + j];
      means += mean / ranks, variances += variance / ranks, squares += mean * mean / ranks;
    }
    // Together: what is within the ranks, and what is between them.
    n.mean[j] += part * (means - n.mean[j]);
    n.variance[j] += part * (variances + squares - means * means - n.variance[j]);
  }
  for (int i = 0; i < kBatch; ++i) {
    double y = n.constant;
    for (int j = 0; j < kHidden; ++j)
      y += n.out[j] * std::max(0.0, n.weight[j] * z[i * kHidden + j] + n.bias[j]);
    const double d = 2 * (y - batch[i].target) / kBatch;
    slope.constant += d;
    for (int j = 0; j < kHidden; ++j) {
      const double a = n.weight[j] * z[i * kHidden + j] + n.bias[j], g = a > 0 ? d * n.out[j] : 0;
      slope.out[j] += d * std::max(0.0, a);
      slope.weight[j] += g * z[i * kHidden + j], slope.bias[j] += g;
      before[i * kHidden + j] = g * n.weight[j];
    }
  }
  for (int j = 0; j < kHidden; ++j)
    for (int rank = 0; rank < ranks; ++rank) {  // the gradient through mean and root: chapter 11
      double sum = 0, product = 0;
      for (int i = rank * size; i < (rank + 1) * size; ++i) {
        sum += before[i * kHidden + j] / size;
        product += before[i * kHidden + j] * z[i * kHidden + j] / size;
      }
      for (int i = rank * size; i < (rank + 1) * size; ++i) {
        const double d =
            (before[i * kHidden + j] - sum - z[i * kHidden + j] * product) / root[rank * kHidden + j];
        slope.w[j][0] += d * batch[i].x, slope.w[j][1] += d * batch[i].y;
      }
    }
  for (int j = 0; j < kHidden; ++j) {
    for (int k = 0; k < 2; ++k) n.w[j][k] -= rate * slope.w[j][k];
    n.weight[j] -= rate * slope.weight[j], n.bias[j] -= rate * slope.bias[j], n.out[j] -= rate * slope.out[j];
  }
  n.constant -= rate * slope.constant;
}

// Returns the percentage of test samples that are right, by the running statistics.
double accuracy(const Network& n, std::uint32_t seed) {
  int right = 0;
  for (int i = 0; i < kTest; ++i) {
    const Sample s = sample(seed, 3, i, 0);
    double y = n.constant;
    for (int j = 0; j < kHidden; ++j)
      y += n.out[j] * std::max(0.0, n.weight[j] * (n.w[j][0] * s.x + n.w[j][1] * s.y - n.mean[j]) /
                                            std::sqrt(n.variance[j] + 1e-5) +
                                        n.bias[j]);
    right += y * s.target > 0;
  }
  return 100.0 * right / kTest;
}

double run(std::uint32_t seed, int ranks, double rate) {
  Network n = {};
  for (int j = 0; j < kHidden; ++j) {
    n.w[j][0] = draw(seed, 1, j, 0), n.w[j][1] = draw(seed, 1, j, 1);
    n.weight[j] = 1, n.bias[j] = draw(seed, 1, j, 2), n.out[j] = draw(seed, 1, j, 3) / 4;
  }
  for (int step = 1; step <= kSteps; ++step) {
    std::vector<Sample> batch;
    for (int i = 0; i < kBatch; ++i) batch.push_back(sample(seed, 2, step, i));
    train(n, batch, ranks, rate, step);
  }
  return accuracy(n, seed);
}

int main(int count, char** arguments) {
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  std::printf(
      is_json
          ? "{"
          : "%d seeds: accuracy in %%\nranks   samples each     rate    mean   spread   lowest   highest\n",
      kSeeds);
  for (const double rate : {0.2, 0.2 / 1024})
    for (const int ranks : {1, 4, 8, 16}) {
      double results[kSeeds], sum = 0, squares = 0;
      for (int seed = 0; seed < kSeeds; ++seed) {
        const double each = results[seed] = run(seed, ranks, rate);
        sum += each, squares += each * each;
      }
      const double mean = sum / kSeeds, spread = std::sqrt((squares - kSeeds * mean * mean) / (kSeeds - 1));
      const auto [low, high] = std::minmax_element(results, results + kSeeds);
      if (!is_json) {
        std::printf("%5d %14d %8.5f %7.1f %8.1f %8.1f %9.1f\n", ranks, kBatch / ranks, rate, mean, spread,
                    *low, *high);
        continue;
      }
      std::printf("%s\"%s%d\": {\"mean\": %.1f, \"spread\": %.1f, \"seeds\": [",
                  ranks > 1 || rate < 0.1 ? ",\n" : "", rate < 0.1 ? "small_rate_" : "ranks_", ranks, mean,
                  spread);
      for (const double& each : results) std::printf("%s%.1f", &each == results ? "" : ", ", each);
      std::printf("]}");
    }
  std::printf(is_json ? "}\n" : "");
}
