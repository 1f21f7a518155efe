#include <span>

#include "philox.h"

void dropout(std::span<float> values, int first, int features, std::uint32_t seed, int layer, int step) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t sample = first + i / features, feature = i % features;
    const std::uint32_t word = philox(
        {sample, feature, static_cast<std::uint32_t>(layer), static_cast<std::uint32_t>(step)}, {seed, 0})[0];
    values[i] = word >> 31 != 0 ? 0 : 2 * values[i];
  }
}
