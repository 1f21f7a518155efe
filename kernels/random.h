// Counter-based random numbers: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). A draw is a pure function of what it is for, so it does not depend on the number of workers,
// ranks or the device, and nothing has to be saved for a resume. Header only: the same code runs on the CPU
// and in kernels.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/runtime/dtype.h"

namespace convoy {

/// What a stream of draws is for; different purposes never share a number.
enum class RandomPurpose : std::uint32_t {
  initialization = 1,
  shuffle = 2,
  augmentation = 3,
  dropout = 4,
  split = 5,
  generated_data = 6,
  test = 7,
};

/// What philox multiplies by, and what each round adds to the key: the golden ratio and sqrt(3) - 1, in 0.32
/// fixed point.
inline constexpr int kPhiloxRounds = 10;
inline constexpr std::uint32_t kPhiloxFactor0 = 0xD2511F53u, kPhiloxFactor1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kPhiloxStep0 = 0x9E3779B9u, kPhiloxStep1 = 0xBB67AE85u;

/// Four 32-bit words from a 128-bit counter and a 64-bit key.
CONVOY_HOST_DEVICE constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                                                 std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{kPhiloxFactor0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kPhiloxFactor1} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += kPhiloxStep0;
    key[1] += kPhiloxStep1;
  }
  return counter;
}

/// Draws for one purpose under one seed. The four coordinates (epoch, sample, layer, element, …) are the
/// caller's.
struct Random {
  std::uint64_t seed = 0;
  RandomPurpose purpose = RandomPurpose::test;
  std::uint32_t stream = 0;  // epoch or layer: up to 2^24 of them
  // Where not null, the epoch: *cell is xor-ed into stream. Read by whoever draws, so it lies in that
  // device's memory, where work that was recorded once finds another epoch each time it is repeated.
  const std::int32_t* cell = nullptr;

  /// The same draws without a cell: what a kernel's thread makes first, so that it reads the cell once.
  CONVOY_HOST_DEVICE constexpr Random resolved() const {
    return {seed, purpose, cell != nullptr ? stream ^ static_cast<std::uint32_t>(*cell) : stream};
  }

  /// Four independent 32-bit words for item (a, b): a up to 2^64, b up to 2^32.
  CONVOY_HOST_DEVICE constexpr std::array<std::uint32_t, 4> words(std::uint64_t a,
                                                                  std::uint32_t b = 0) const {
    return philox(counter(a, b), key());
  }
  /// What those are philox's of.
  CONVOY_HOST_DEVICE constexpr std::array<std::uint32_t, 4> counter(std::uint64_t a, std::uint32_t b) const {
    return {static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32), b,
            (static_cast<std::uint32_t>(purpose) << 24) ^ resolved().stream};
  }
  CONVOY_HOST_DEVICE constexpr std::array<std::uint32_t, 2> key() const {
    return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  }
};

/// Uniform in [0, 1): 24 bits, exact in float. The same on every device.
CONVOY_HOST_DEVICE constexpr float to_uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

/// Uniform in [0, 1) with 53 bits, for initialisation on the host.
CONVOY_HOST_DEVICE constexpr double to_uniform53(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((static_cast<std::uint64_t>(high) << 21) ^ (low >> 11)) * 0x1p-53;
}

/// Uniform integer in [0, n), by the high half of a product; its bias of n / 2^32 is below anything
/// measurable here.
CONVOY_HOST_DEVICE constexpr std::uint32_t to_below(std::uint32_t word, std::uint32_t n) {
  return static_cast<std::uint32_t>((std::uint64_t{word} * n) >> 32);
}

}  // namespace convoy
