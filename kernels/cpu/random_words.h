// Random words of many items at a time.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "kernels/random.h"
#include "kernels/runtime/simd.h"

namespace convoy {

/// Items that draw_wide_words takes: enough vectors that one's products are ready before its next round.
inline constexpr int kWideQuads = 4 * simd::kWideLanes;

/// The words of items `counter`, counter + {0, 0, 1, 0}, … one after another, kWideQuads times four: the
/// rounds of philox, a lane an item. A word is the lower half of a lane. The upper half is whatever a product
/// left there, since products alone read a word before its end, and they take lower halves.
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
      Wide product0 = c[0][v], product1 = c[2][v];
      simd::multiply_lower_half(product0, kPhiloxFactor0);
      simd::multiply_lower_half(product1, kPhiloxFactor1);
      c[0][v] = (product1 >> 32) ^ c[1][v] ^ key[0];
      c[1][v] = product1;
      c[2][v] = (product0 >> 32) ^ c[3][v] ^ key[1];
      c[3][v] = product0;
    }
    key[0] += kPhiloxStep0;
    key[1] += kPhiloxStep1;
  }
  for (int v = 0; v < kVectors; ++v) {
    const Wide first = (c[0][v] & 0xffffffffU) | (c[1][v] << 32),
               second = (c[2][v] & 0xffffffffU) | (c[3][v] << 32);
    const Wide low = __builtin_shuffle(first, second, Wide{0, 8, 1, 9, 2, 10, 3, 11});
    const Wide high = __builtin_shuffle(first, second, Wide{4, 12, 5, 13, 6, 14, 7, 15});
    std::memcpy(words, &low, sizeof low);
    std::memcpy(words + 16, &high, sizeof high);
    words += 32;
  }
}

/// words[4 i + k] = random.words(a, first + i)[k] for i in [0, quads), several items at a time.
inline void draw_words(const Random& random, std::uint64_t a, std::uint32_t first, int quads,
                       std::uint32_t* words) {
  const Random draws = random.resolved();
  int i = 0;
  if constexpr (simd::kMultipliesHalves) {
    for (; i + kWideQuads <= quads; i += kWideQuads)
      draw_wide_words(draws.counter(a, first + static_cast<std::uint32_t>(i)), draws.key(), words + 4 * i);
  }
  // The compiler finds vectors in this too, but spends most of its time on rearranging them.
#pragma GCC ivdep
  for (int rest = i; rest < quads; ++rest) {
    const std::array<std::uint32_t, 4> drawn = draws.words(a, first + static_cast<std::uint32_t>(rest));
    for (int k = 0; k < 4; ++k) words[4 * rest + k] = drawn[static_cast<std::size_t>(k)];
  }
}

}  // namespace convoy
