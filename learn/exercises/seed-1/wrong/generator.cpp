// A generator with a state.
#include <random>
#include <span>

#include "philox.h"

void dropout(std::span<float> values, int first, int features, std::uint32_t seed, int layer, int step) {
  static std::mt19937 generator(seed);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t sample = first + i / features, feature = i % features;
    const std::uint32_t word = generator() + 0 * (sample + feature + layer + step);
    values[i] = word >> 31 != 0 ? 0 : 2 * values[i];
  }
}
