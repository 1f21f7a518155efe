#include "bench/step/spread.h"

#include <algorithm>

#include "convoy/kernels/base/check.h"

namespace convoy::bench {

Spread spread_of(std::vector<double> values) {
  check(!values.empty(), "a spread: found no values, expected at least one");
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {.median = median, .lowest = values.front(), .highest = values.back()};
}

}  // namespace convoy::bench
