// Sums in several orders, what becomes of their last bits in a training, and random numbers with and without
// a state.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "../../../common/philox.h"

using Floats = std::span<const float>;

float add(Floats values) {
  float sum = 0;
  for (float value : values) sum += value;
  return sum;
}

// One part per thread.
float add_parts(Floats values, int threads) {
  float sum = 0;
  for (int t = 0; t < threads; ++t) {
    const std::size_t begin = values.size() * t / threads, end = values.size() * (t + 1) / threads;
    sum += add(values.subspan(begin, end - begin));
  }
  return sum;
}

// Blocks of equal size, whatever number of threads adds them.
float add_blocks(Floats values, int threads) {
  const std::size_t block = 1000, blocks = (values.size() + block - 1) / block;
  std::vector<float> sums(blocks);
  for (int t = 0; t < threads; ++t)
    for (std::size_t i = t; i < blocks; i += threads)
      sums[i] = add(values.subspan(i * block, std::min(block, values.size() - i * block)));
  return add(sums);
}

const int kHidden = 16, kSamples = 200, kSteps = 1000;

// Trains a small network to tell the inside of a ring from its outside. `is_reversed`: gradients of the
// samples are added from the last to the first. Returns the loss of each step.
std::vector<float> losses(float rate, bool is_reversed) {
  std::vector<float> w(4 * kHidden), velocity(w.size(), 0), result;
  const auto draw = [](std::uint32_t a, std::uint32_t b) {
    return philox({a, b, 0, 0}, {1, 0})[0] * 0x1p-31f - 1;
  };
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = draw(i, 1);
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> gradient(w.size(), 0);
    float loss = 0;
    for (int k = 0; k < kSamples; ++k) {
      const int sample = is_reversed ? kSamples - 1 - k : k;
      const float x = draw(sample, 2), y = draw(sample, 3), target = x * x + y * y < 0.5f ? 1 : -1;
      float hidden[kHidden], out = 0;
      for (int i = 0; i < kHidden; ++i) {
        const float z = w[4 * i] * x + w[4 * i + 1] * y + w[4 * i + 2];
        hidden[i] = z / (1 + std::fabs(z));  // its derivative is (1 - |hidden|)^2
        out += w[4 * i + 3] * hidden[i];
      }
      loss += (out - target) * (out - target) / kSamples;
      for (int i = 0; i < kHidden; ++i) {
        const float d = 2 * (out - target) / kSamples,
                    before = d * w[4 * i + 3] * (1 - std::fabs(hidden[i])) * (1 - std::fabs(hidden[i]));
        gradient[4 * i] += before * x, gradient[4 * i + 1] += before * y, gradient[4 * i + 2] += before;
        gradient[4 * i + 3] += d * hidden[i];
      }
    }
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] -= rate * (velocity[i] = 0.9f * velocity[i] + gradient[i]);
    result.push_back(loss);
  }
  return result;
}

// The flip of each sample of an epoch, if each rank has a generator, and takes the samples rank, rank +
// ranks, …
std::vector<int> flips_by_state(int samples, int ranks) {
  std::vector<int> result(samples);
  for (int rank = 0; rank < ranks; ++rank) {
    std::mt19937 generator(7);
    for (int i = rank; i < samples; i += ranks) result[i] = generator() & 1;
  }
  return result;
}

std::vector<int> flips_by_function(int samples, int ranks) {
  const std::uint32_t seed = 7, epoch = 0;
  std::vector<int> result(samples);
  for (int rank = 0; rank < ranks; ++rank)
    for (std::uint32_t i = rank; i < result.size(); i += ranks)
      result[i] = philox({i, epoch, 0, 0}, {seed, 0})[0] & 1;
  return result;
}

int equal(const std::vector<int>& a, const std::vector<int>& b) {
  int count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] == b[i];
  return count;
}

int main(int count, char** arguments) {
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  std::vector<float> values(1000000);
  double exact = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    exact += values[i] = philox({static_cast<std::uint32_t>(i), 0, 0, 0}, {1, 0})[0] * 0x1p-32f;
  const std::vector<float> backward(values.rbegin(), values.rend());
  std::printf(is_json ? "{\"sums\": {" : "1,000,000 numbers, sum %.3f\n", exact);
  const struct {
    const char* name;
    float sum;
  } sums[] = {{"forward", add(values)},
              {"backward", add(backward)},
              {"parts of 4 threads", add_parts(values, 4)},
              {"parts of 8 threads", add_parts(values, 8)},
              {"blocks, 4 threads", add_blocks(values, 4)},
              {"blocks, 8 threads", add_blocks(values, 8)}};
  for (const auto& [name, sum] : sums)
    std::printf(is_json ? "\"%s\": %.4f, " : "  %-20s %.4f\n", name, static_cast<double>(sum));

  std::printf(is_json ? "\"exact\": %.3f}, \"drift\": {"
                      : "rate   difference of the losses of steps 0, 200, 400, 600 and 800\n",
              exact);
  for (const float rate : {0.1f, 0.5f}) {
    const std::vector<float> a = losses(rate, false), b = losses(rate, true);
    if (is_json)
      std::printf("%s\"%g\": {", rate > 0.1f ? "}, " : "", static_cast<double>(rate));
    else
      std::printf("%4g ", static_cast<double>(rate));
    for (int step = 0; step < kSteps; step += is_json ? 20 : 200) {
      const double difference = std::fabs(a[step] - b[step]);
      if (is_json)
        std::printf("%s\"%d\": %.3g", step > 0 ? ", " : "", step, difference);
      else
        std::printf("%9.1e", difference);
    }
    if (!is_json) std::printf("\n");
  }
  std::printf(is_json ? "}}, \"flips\": {"
                      : "ranks   samples of 10,000 with the flip of 1 rank: by state   by function\n");
  for (int ranks : {1, 2, 4, 8})
    std::printf(is_json ? "%s\"%d\": {\"state\": %d, \"function\": %d}" : "%s%5d %53d %13d\n",
                is_json && ranks > 1 ? ", " : "", ranks,
                equal(flips_by_state(10000, 1), flips_by_state(10000, ranks)),
                equal(flips_by_function(10000, 1), flips_by_function(10000, ranks)));
  std::printf(is_json ? "}}\n" : "");
}
