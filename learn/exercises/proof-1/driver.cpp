#include "program.h"

/// What a variance, or a mutant of it, does with a row.
struct Plan {
  const char* name;
  bool is_right;
  float (*variance)(const float* row, int n);
  bool takes_first_row = false;
};

static int right_divisor(int n) { return n; }
static int other_divisor(int n) { return n - 1; }

template <class T>
static float two_passes(const float* row, int n, int divisor, bool is_reversed = false) {
  T mean = 0, sum = 0;
  for (int i = 0; i < n; ++i) mean += row[is_reversed ? n - 1 - i : i];
  mean /= static_cast<T>(n);
  for (int i = 0; i < n; ++i) {
    const T distance = row[is_reversed ? n - 1 - i : i] - mean;
    sum += distance * distance;
  }
  return static_cast<float>(sum / static_cast<T>(divisor));
}

static const Plan kPlans[] = {
    {"one that computes in double", true,
     [](const float* row, int n) { return two_passes<double>(row, n, right_divisor(n)); }},
    {"one that computes in float", true,
     [](const float* row, int n) { return two_passes<float>(row, n, right_divisor(n)); }},
    {"one that adds from the end", true,
     [](const float* row, int n) { return two_passes<float>(row, n, right_divisor(n), true); }},
    {"one with another divisor", false,
     [](const float* row, int n) { return two_passes<double>(row, n, other_divisor(n)); }},
    {"one that leaves the last n % 32 elements out", false,
     [](const float* row, int n) {
       const int used = n < 32 ? n : n / 32 * 32;
       return two_passes<double>(row, used, right_divisor(used));
     }},
    {"one that gives all rows the result of row 0", false,
     [](const float* row, int n) { return two_passes<double>(row, n, right_divisor(n)); }, true},
    {"one that subtracts the square of the mean from the mean of squares", false,
     [](const float* row, int n) {
       float sum = 0, squares = 0;
       for (int i = 0; i < n; ++i) sum += row[i], squares += row[i] * row[i];
       return (squares - sum * (sum / static_cast<float>(n))) / static_cast<float>(right_divisor(n));
     }},
    {"one that takes NaN for 0", false,
     [](const float* row, int n) {
       std::vector<float> values(row, row + n);
       for (float& value : values) value = std::isnan(value) ? 0 : value;
       return two_passes<double>(values.data(), n, right_divisor(n));
     }},
};

void lesson::run(Case& at) {
  for (int i = 0; i < at.size(0) && i < static_cast<int>(sizeof kPlans / sizeof *kPlans); ++i) {
    const Plan& plan = kPlans[i];
    const bool accepted = accepts([&](const std::vector<float>& x, int rows, int n) {
      if (rows < 1 || n < 2 || static_cast<int>(x.size()) != rows * n)
        at.fail("it passes %d numbers as %d rows of %d, expected rows x n of them, and n at least 2",
                static_cast<int>(x.size()), rows, n);
      std::vector<float> results(static_cast<std::size_t>(rows));
      for (int row = 0; row < rows; ++row)
        results[static_cast<std::size_t>(row)] =
            plan.variance(x.data() + (plan.takes_first_row ? 0 : row * n), n);
      return results;
    });
    if (accepted != plan.is_right) at.fail("it %s %s", accepted ? "accepts" : "refuses", plan.name);
  }
}
