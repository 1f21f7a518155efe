// Pseudorandom inputs of the tests of optimizers.
#pragma once

#include <cstdint>
#include <vector>

#include "convoy/kernels/base/random.h"

namespace convoy::testing {

/// Returns values in [-1, 1) that depend on the seed.
inline std::vector<double> random_values(std::int64_t count, std::uint64_t seed) {
  const Random random{.seed = seed, .purpose = RandomPurpose::test};
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(
        2.0 * static_cast<double>(to_uniform(random.words(static_cast<std::uint64_t>(i), 0)[0])) - 1);
  return values;
}

}  // namespace convoy::testing
