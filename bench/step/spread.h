// The median, minimum and maximum of several measurements.
#pragma once

#include <vector>

namespace convoy::bench {

/// The median, minimum and maximum of a set of values.
struct Spread {
  double median = 0, lowest = 0, highest = 0;
};

/// Returns the spread of `values`. Throws if there are none.
Spread spread_of(std::vector<double> values);

}  // namespace convoy::bench
