// The order of an epoch in constant memory, for sets whose samples are stored in blocks that are read as a whole. All
// functions are thread-safe.
#pragma once

#include <cstdint>

#include "convoy/kernels/base/random.h"

namespace convoy::data {

/// Returns the image of `x` under a permutation of [0, n) that `random` and `key` select. It is a Feistel network (Luby and
/// Rackoff, "How to construct pseudorandom permutations from pseudorandom functions", 1988) over the next power of two,
/// which is applied again until the result is below n: cycle walking (Black and Rogaway, "Ciphers with arbitrary finite
/// domains", CT-RSA 2002). That takes less than two rounds of the network on average. Requires x < n <= 2^62.
std::uint64_t permuted(std::uint64_t x, std::uint64_t n, const Random& random, std::uint32_t key);

/// The order of an epoch: a permutation of the samples that depends on its members alone.
///
/// Blocks of consecutive samples are permuted, and then the samples in a window of a few adjacent blocks. Windows follow
/// each other in up to kMaxLanes lanes, each of which has the same part of every full global batch. So a rank, whose shard
/// of a batch is a few lanes, reads few blocks at a time, and each of them as a whole; a batch has samples of many blocks.
/// Samples after the last whole block keep their places, at which the last window permutes them.
struct BlockOrder {
  static constexpr std::int64_t kMaxLanes = 64;  // also the number of blocks that are mixed at a time

  std::int64_t samples = 0;       // of an epoch
  std::int64_t block = 1;         // samples of a block
  std::int64_t global_batch = 1;  // samples per step on all ranks
  std::uint64_t seed = 1;         // of the training
  std::int64_t epoch = 0;         // 0 to 2^24 - 1

  /// Returns the sample at `position`, 0 to samples - 1.
  std::int64_t at(std::int64_t position) const;
  /// Returns the number of lanes: the largest divisor of global_batch up to kMaxLanes.
  std::int64_t lanes() const;
  /// Returns the number of samples of a window.
  std::int64_t window() const { return block * (kMaxLanes / lanes()); }
  /// Returns how many steps before its use a block should be requested: half of those that use a window, and two more.
  std::int64_t steps_ahead() const { return 2 + window() * lanes() / global_batch / 2; }
};

}  // namespace convoy::data
