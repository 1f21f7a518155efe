// Rounds numbers to formats with 16 bits: sums, small steps, and the gradients of a deep network with and without a scale.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>

#include "../../../common/tiny_autograd.h"

// Numbers 1.xxx 2^e with `bits` binary digits behind the point, and e from `smallest` to `largest`.
struct Format {
  const char* name;
  int bits, smallest, largest;
};

const Format kBf16 = {"bf16", 7, -126, 127}, kF16 = {"f16", 10, -14, 15}, kF32 = {"f32", 23, -126, 127};

double largest_of(const Format& format) {
  return std::ldexp(2 - std::ldexp(1, -format.bits), format.largest);
}

double rounded(double x, const Format& format) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int exponent = std::max(std::ilogb(x), format.smallest);
  const double unit = std::ldexp(1, exponent - format.bits);  // of the last digit
  const double y = std::nearbyint(x / unit) * unit;           // ties to even
  return std::fabs(y) <= largest_of(format) ? y : std::copysign(INFINITY, x);
}

// The sum of n ones, if each partial sum is rounded.
double sum_of_ones(int n, const Format& format) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum = rounded(sum + 1, format);
  return sum;
}

// A weight of 1 after n steps of 0.001, if it is rounded after each of them.
double weight_after(int n, const Format& format) {
  double weight = 1;
  for (int i = 0; i < n; ++i) weight = rounded(weight - 0.001, format);
  return weight;
}

double uniform() {
  static unsigned state = 1;
  state = state * 1664525u + 1013904223u;
  return (state >> 8) / 16777216.0;
}

tiny::Matrix random_matrix(int rows, int columns, double size) {
  tiny::Matrix result(rows, columns);
  for (double& element : result.data) element = size * (2 * uniform() - 1);
  return result;
}

// The gradients of the weights of 8 layers with small weights.
std::vector<double> gradients() {
  std::vector<tiny::Value> weights;
  tiny::Value x = tiny::input(random_matrix(16, 32, 1));
  for (int layer = 0; layer < 8; ++layer) {
    weights.push_back(tiny::parameter(random_matrix(32, 32, 0.06)));
    x = tanh(matmul(x, weights.back()));
  }
  backward(affine(sum(x), 1.0 / 512, 0));
  std::vector<double> result;
  for (const tiny::Value& each : weights)
    result.insert(result.end(), each->gradient.data.begin(), each->gradient.data.end());
  return result;
}

int main(int count, char** arguments) {
  const bool is_json = count > 1 && std::strcmp(arguments[1], "--json") == 0;
  const std::vector<double> all = gradients();
  if (!is_json) std::printf("      4,096 ones   1,000 steps   gradients 0   scaled by 65,536   infinite\n");
  const char* separator = "{";
  for (const Format& format : {kF32, kBf16, kF16}) {
    int zero = 0, zero_scaled = 0, infinite = 0;
    for (double gradient : all) {
      zero += rounded(gradient, format) == 0;
      zero_scaled += rounded(65536 * gradient, format) == 0;
      infinite += std::isinf(rounded(65536 * gradient, format));
    }
    const double ones = sum_of_ones(4096, format), weight = weight_after(1000, format);
    if (!is_json)
      std::printf("%-5s %10.0f %13.3f %13d %18d %10d\n", format.name, ones, weight, zero, zero_scaled,
                  infinite);
    else
      std::printf(
          "%s\"%s\": {\"ones\": %.0f, \"weight\": %.3f, \"zero\": %d, \"zero_scaled\": %d, \"infinite\": %d, \"largest\": %.6g}",
          separator, format.name, ones, weight, zero, zero_scaled, infinite, largest_of(format));
    separator = ",\n";
  }
  if (!is_json) return 0;
  std::map<int, int> exponents;
  for (double gradient : all) ++exponents[gradient == 0 ? -60 : std::ilogb(gradient)];
  std::printf(",\n\"gradients\": {");
  separator = "";
  for (const auto& [exponent, gradients] : exponents) {
    std::printf("%s\"%d\": %d", separator, exponent, gradients);
    separator = ", ";
  }
  std::printf("},\n\"all\": %zu}\n", all.size());
}
