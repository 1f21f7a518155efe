#include "bench/spread.h"

#include <algorithm>

#include "kernels/runtime/check.h"

namespace convoy::bench {

Spread spread_of(std::vector<double> values) {
  check(!values.empty(), "a spread: found no values, expected at least one");
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {.median = median, .lowest = values.front(), .highest = values.back()};
}

}  // namespace convoy::bench
