// Vectorized Philox: the random words of many items at a time.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "convoy/kernels/base/random.h"
#include "convoy/kernels/cpu/primitives/simd.h"

namespace convoy::kernels {

/// Items per call of draw_wide_words(): enough vectors to hide the latency of the multiplications between
/// rounds.
inline constexpr int kWideQuads = 4 * simd::kWideLanes;

/// Writes the words of the items `counter`, counter + {0, 0, 1, 0}, …: four per item, kWideQuads items, in
/// order. Runs the rounds of Philox with one 64-bit lane per item. A word occupies the lower 32 bits of its
/// lane. The upper 32 bits may hold leftovers of a multiplication. They do not matter: multiplications read
/// the lower 32 bits only, and the packing at the end discards the upper bits.
inline void draw_wide_words(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key,
                            std::uint32_t* words) {
  using simd::Wide;
  constexpr int kVectors = kWideQuads / simd::kWideLanes;
  Wide c[4][kVectors];
  for (int v = 0; v < kVectors; ++v) {
    for (int word = 0; word < 4; ++word) c[word][v] = Wide{} + counter[static_cast<std::size_t>(word)];
    c[2][v] += Wide{0, 1, 2, 3, 4, 5, 6, 7} + static_cast<std::uint64_t>(v * simd::kWideLanes);
  }
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (int v = 0; v < kVectors; ++v) {
      Wide wide0 = c[0][v], wide1 = c[2][v];
      simd::multiply_lower(wide0, kPhiloxFactor0);
      simd::multiply_lower(wide1, kPhiloxFactor1);
      c[0][v] = (wide1 >> 32) ^ c[1][v] ^ key[0];
      c[1][v] = wide1;
      c[2][v] = (wide0 >> 32) ^ c[3][v] ^ key[1];
      c[3][v] = wide0;
    }
    key[0] += kPhiloxStep0;
    key[1] += kPhiloxStep1;
  }
  for (int v = 0; v < kVectors; ++v) {
    const Wide first = (c[0][v] & 0xffffffffU) | (c[1][v] << 32),
               second = (c[2][v] & 0xffffffffU) | (c[3][v] << 32);
    const Wide low = __builtin_shufflevector(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
    const Wide high = __builtin_shufflevector(first, second, 4, 12, 5, 13, 6, 14, 7, 15);
    std::memcpy(words, &low, sizeof low);
    std::memcpy(words + 16, &high, sizeof high);
    words += 32;
  }
}

/// Sets words[4 i + k] = random.words(a, first + i)[k] for i in [0, quads), several items at a time.
inline void draw_words(const Random& random, std::uint64_t a, std::uint32_t first, int quads,
                       std::uint32_t* words) {
  const Random draws = random.resolved();
  int i = 0;
  if constexpr (simd::kHasLowerMultiply) {
    for (; i + kWideQuads <= quads; i += kWideQuads)
      draw_wide_words(draws.counter(a, first + static_cast<std::uint32_t>(i)), draws.key(), words + 4 * i);
  }
  // The compiler vectorizes this loop too, but the code spends much of its time on shuffles.
#pragma GCC ivdep
  for (int rest = i; rest < quads; ++rest) {
    const std::array<std::uint32_t, 4> drawn = draws.words(a, first + static_cast<std::uint32_t>(rest));
    for (int k = 0; k < 4; ++k) words[4 * rest + k] = drawn[static_cast<std::size_t>(k)];
  }
}

}  // namespace convoy::kernels
