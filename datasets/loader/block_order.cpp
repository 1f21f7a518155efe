#include "convoy/datasets/loader/block_order.h"

#include <algorithm>
#include <bit>

namespace convoy::data {

std::uint64_t permuted(std::uint64_t x, std::uint64_t n, const Random& random, std::uint32_t key) {
  constexpr std::uint64_t kRounds = 8;
  if (n < 2) return x;
  const int bits = std::bit_width(n - 1), low_bits = (bits + 1) / 2;
  const std::uint64_t low_mask = (std::uint64_t{1} << low_bits) - 1,
                      high_mask = (std::uint64_t{1} << (bits - low_bits)) - 1;
  std::uint64_t low = 0, high = 0;
  do {
    low = x & low_mask;
    high = x >> low_bits;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      const bool changes_high = round % 2 == 0;
      const std::uint64_t word = random.words(round << 32 | (changes_high ? low : high), key)[0];
      if (changes_high)
        high ^= word & high_mask;
      else
        low ^= word & low_mask;
    }
    x = high << low_bits | low;
  } while (x >= n);
  return x;
}

std::int64_t BlockOrder::lanes() const {
  std::int64_t lanes = std::min(kMaxLanes, global_batch);
  while (global_batch % lanes != 0) --lanes;
  return lanes;
}

std::int64_t BlockOrder::at(std::int64_t position) const {
  const auto u64 = [](std::int64_t number) { return static_cast<std::uint64_t>(number); };
  const Random random{seed, RandomPurpose::shuffle, static_cast<std::uint32_t>(epoch)};
  const std::int64_t full_steps = samples / global_batch, share = global_batch / lanes();
  const std::int64_t step = position / global_batch, in_batch = position % global_batch;
  // A lane has a range of places, of which each step takes the next few. The last, partial step has the rest.
  const std::int64_t place =
      step == full_steps ? position : (in_batch / share * full_steps + step) * share + in_batch % share;

  const std::int64_t window_index = place / window(), begin = window_index * window();
  const std::int64_t shuffled =
      begin + static_cast<std::int64_t>(permuted(u64(place - begin), u64(std::min(window(), samples - begin)),
                                                 random, static_cast<std::uint32_t>(window_index) + 1));
  const std::int64_t blocks = samples / block, slot = shuffled / block;
  if (slot == blocks) return shuffled;  // after the last whole block
  return static_cast<std::int64_t>(permuted(u64(slot), u64(blocks), random, 0)) * block + shuffled % block;
}

}  // namespace convoy::data
