// Counter-based random numbers: Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). A random number is a pure function of its seed, purpose and coordinates. It does not depend on
// the number of workers or ranks or on the device, and a checkpoint needs no generator state. Header only:
// the same code runs on the CPU and in CUDA kernels. All functions are thread-safe while no code writes the
// cell of a Random.
#pragma once

#include <array>
#include <cstdint>

#include "convoy/kernels/base/dtype.h"

namespace convoy {

/// The purpose of a stream of random numbers. Streams of different purposes are independent.
enum class RandomPurpose : std::uint32_t {
  initialization = 1,  // of parameters
  shuffle = 2,         // the order of samples in an epoch
  augmentation = 3,    // of images
  dropout = 4,         // which elements are dropped
  split = 5,           // of a data set into training and test images
  generated_data = 6,  // data::generate_shapes()
  test = 7,            // values in tests
};

inline constexpr int kPhiloxRounds = 10;                      // of Philox-4x32-10
inline constexpr std::uint32_t kPhiloxFactor0 = 0xD2511F53u;  // the first multiplier
inline constexpr std::uint32_t kPhiloxFactor1 = 0xCD9E8D57u;  // the second multiplier
/// Added to key[0] in every round: the golden ratio in 0.32 fixed point.
inline constexpr std::uint32_t kPhiloxStep0 = 0x9E3779B9u;
/// Added to key[1] in every round: sqrt(3) - 1 in 0.32 fixed point.
inline constexpr std::uint32_t kPhiloxStep1 = 0xBB67AE85u;

/// Returns the four 32-bit words that Philox-4x32-10 computes from a 128-bit counter and a 64-bit key.
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

/// A generator for one purpose and one seed. The caller chooses the meaning of the coordinates: epoch, layer,
/// sample, element, and so on.
struct Random {
  std::uint64_t seed = 0;                       // of the training
  RandomPurpose purpose = RandomPurpose::test;  // what the numbers are for
  std::uint32_t stream = 0;                     // an epoch or a layer, less than 2^24
  /// If not null, *cell (the epoch) is xor-ed into `stream`. The code that draws reads it, so it must be in
  /// the memory of that device. A captured CUDA graph thus uses the current epoch in every replay.
  const std::int32_t* cell = nullptr;

  /// Returns an equal generator without a cell. A kernel thread calls this first, so that it reads *cell
  /// once.
  CONVOY_HOST_DEVICE constexpr Random resolved() const {
    return {seed, purpose, cell != nullptr ? stream ^ static_cast<std::uint32_t>(*cell) : stream};
  }

  /// Returns four independent 32-bit words for the item with coordinates (a, b).
  CONVOY_HOST_DEVICE constexpr std::array<std::uint32_t, 4> words(std::uint64_t a,
                                                                  std::uint32_t b = 0) const {
    return philox(counter(a, b), key());
  }
  /// Returns the Philox counter for the item with coordinates (a, b).
  CONVOY_HOST_DEVICE constexpr std::array<std::uint32_t, 4> counter(std::uint64_t a, std::uint32_t b) const {
    return {static_cast<std::uint32_t>(a), static_cast<std::uint32_t>(a >> 32), b,
            (static_cast<std::uint32_t>(purpose) << 24) ^ resolved().stream};
  }
  /// Returns the Philox key.
  CONVOY_HOST_DEVICE constexpr std::array<std::uint32_t, 2> key() const {
    return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  }
};

/// Returns a uniform number in [0, 1) with 24 bits, which a float holds exactly. Equal on every device.
CONVOY_HOST_DEVICE constexpr float to_uniform(std::uint32_t word) {
  return static_cast<float>(word >> 8) * 0x1p-24f;
}

/// Returns a uniform number in [0, 1) with 53 bits. For parameter initialization on the host.
CONVOY_HOST_DEVICE constexpr double to_uniform53(std::uint32_t high, std::uint32_t low) {
  return static_cast<double>((static_cast<std::uint64_t>(high) << 21) ^ (low >> 11)) * 0x1p-53;
}

/// Returns a uniform integer in [0, n): the upper 32 bits of word * n. The bias of n / 2^32 is negligible
/// here.
CONVOY_HOST_DEVICE constexpr std::uint32_t to_below(std::uint32_t word, std::uint32_t n) {
  return static_cast<std::uint32_t>((std::uint64_t{word} * n) >> 32);
}

}  // namespace convoy
