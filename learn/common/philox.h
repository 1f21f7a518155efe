// Random numbers as a function of four words: Philox-4x32-10 (Salmon and others, "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011). Chapter 20 of the book explains it: learn/book/20-determinism.md.
#pragma once

#include <array>
#include <cstdint>

/// Returns four random words for a counter, in 10 rounds. Each other counter, and each other key, has other
/// words.
inline std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> c, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = 0xd2511f53ull * c[0], b = 0xcd9e8d57ull * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9e3779b9;
    key[1] += 0xbb67ae85;
  }
  return c;
}
