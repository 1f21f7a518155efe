// The median of several measurements, with the lowest and the highest beside it.
#pragma once

#include <vector>

namespace convoy::bench {

struct Spread {
  double median = 0, lowest = 0, highest = 0;
};

/// values: at least one.
Spread spread_of(std::vector<double> values);

}  // namespace convoy::bench
