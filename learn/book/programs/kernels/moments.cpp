// The variance of 65,536 numbers in float, in five ways, for means from 0 to 100,000. Prints the relative
// errors.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include "../../../common/philox.h"

using Floats = std::span<const float>;

// Reads the numbers once: the mean of the squares minus the square of the mean.
float of_squares(Floats x) {
  float sum = 0, squares = 0;
  for (float each : x) sum += each, squares += each * each;
  const float n = static_cast<float>(x.size()), mean = sum / n;
  return squares / n - mean * mean;
}

// Reads them twice.
float two_passes(Floats x) {
  float sum = 0, squares = 0;
  for (float each : x) sum += each;
  const float n = static_cast<float>(x.size()), mean = sum / n;
  for (float each : x) squares += (each - mean) * (each - mean);
  return squares / n;
}

// As of_squares(), of the distances from the first number.
float shifted(Floats x) {
  float sum = 0, squares = 0;
  for (float each : x) sum += each - x[0], squares += (each - x[0]) * (each - x[0]);
  const float n = static_cast<float>(x.size()), mean = sum / n;
  return squares / n - mean * mean;
}

struct Moments {
  float count = 0, mean = 0, squares = 0;  // squares: the sum of the squared distances from the mean
};

// Welford's way: corrects mean and squares with each number.
void add(Moments& m, float x) {
  m.count += 1;
  const float distance = x - m.mean;
  m.mean += distance / m.count;
  m.squares += distance * (x - m.mean);
}

// Chan's formula: the moments of two sets of numbers together.
Moments merge(const Moments& a, const Moments& b) {
  const float count = a.count + b.count, distance = b.mean - a.mean;
  return {count, a.mean + distance * b.count / count,
          a.squares + b.squares + distance * distance * a.count * b.count / count};
}

float welford(Floats x) {
  Moments moments;
  for (float each : x) add(moments, each);
  return moments.squares / moments.count;
}

// 256 threads with as many numbers each, then a tree.
float tree(Floats x) {
  std::vector<Moments> of_thread(256);
  for (std::size_t i = 0; i < x.size(); ++i) add(of_thread[i % 256], x[i]);
  for (std::size_t stride = 128; stride > 0; stride /= 2)
    for (std::size_t i = 0; i < stride; ++i) of_thread[i] = merge(of_thread[i], of_thread[i + stride]);
  return of_thread[0].squares / of_thread[0].count;
}

int main(int count, char** arguments) {
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  const struct {
    const char* name;
    float (*variance)(Floats);
  } ways[] = {{"of_squares", of_squares},
              {"two_passes", two_passes},
              {"shifted", shifted},
              {"welford", welford},
              {"tree", tree}};
  std::printf(is_json ? "{" : "    mean");
  if (!is_json)
    for (const auto& way : ways) std::printf(" %12s", way.name);
  for (const int mean : {0, 10, 100, 1000, 10000, 100000}) {
    std::vector<float> x(65536);
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      double normal = -6;  // the sum of 12 uniform numbers, with the variance 1
      for (std::uint32_t k = 0; k < 12; ++k)
        normal += philox({static_cast<std::uint32_t>(i), k, 0, 0}, {11, 0})[0] * 0x1p-32;
      x[i] = static_cast<float>(mean + normal);
      sum += x[i];
    }
    for (float each : x) squares += (each - sum / x.size()) * (each - sum / x.size());
    std::printf(is_json ? "%s\"%d\": {" : "%s\n%8d", is_json && mean > 0 ? ",\n" : "", mean);
    for (const auto& way : ways) {
      const double error = std::fabs(way.variance(x) * static_cast<double>(x.size()) / squares - 1);
      if (is_json) std::printf("%s\"%s\": ", &way == &ways[0] ? "" : ", ", way.name);
      std::printf(is_json ? "%.1e" : " %12.1e", error);
    }
    if (is_json) std::printf("}");
  }
  std::printf(is_json ? "}\n" : "\n");
}
