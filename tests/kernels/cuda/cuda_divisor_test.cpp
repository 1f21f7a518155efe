// Compares Divisor with the division operator on the host, and IndexMap with its strides; kernels run the same code.
#include "convoy/kernels/cuda/primitives/divisor.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "convoy/kernels/base/random.h"
#include "convoy/kernels/cuda/primitives/index_map.h"

namespace convoy {
namespace {

using kernels::cuda::Divisor;

constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();

// Tests multiples of the divisor and the numbers one below, where the quotient changes.
void check(std::int64_t divisor) {
  const Divisor by(divisor);
  ASSERT_EQ(by.value(), divisor);
  const Random random{.seed = static_cast<std::uint64_t>(divisor)};
  std::vector<std::int64_t> quotients = {0, 1, 2, kMax / divisor / 2, kMax / divisor};
  for (std::uint64_t i = 0; i < 16; ++i) quotients.push_back(random.words(i)[0] % (kMax / divisor + 1));
  for (const std::int64_t quotient : quotients)
    for (const std::int64_t n : {quotient * divisor - 1, quotient * divisor, kMax - quotient}) {
      if (n < 0 || n > kMax) continue;
      ASSERT_EQ(by.quotient(n), n / divisor) << n << " / " << divisor;
      ASSERT_EQ(by.quotient(static_cast<int>(n)), n / divisor) << n << " / " << divisor;
      const std::int64_t large = n + (std::int64_t{1} << 40);
      ASSERT_EQ(by.quotient(large), large / divisor) << large << " / " << divisor;
    }
}

TEST(Divisor, EqualsDivision) {
  for (std::int64_t divisor = 1; divisor < 5000; ++divisor) check(divisor);
  for (int bits = 13; bits < 31; ++bits)
    for (const std::int64_t offset : {-1, 0, 1}) check((std::int64_t{1} << bits) + offset);
  const Random random{.seed = 1};
  for (std::uint64_t i = 0; i < 5000; ++i) check(1 + random.words(i)[0] % kMax);
  check(kMax);
}

// Axes that are merged may have 2^32 elements, whose lower 32 bits are a divisor of 0.
TEST(IndexMap, HasTheOffsetsOfMoreThanFourBillionElements) {
  using kernels::LoopNest, kernels::Strides;
  constexpr std::int64_t kSize = 1 << 16;
  const Shape space{2, kSize, kSize};
  for (const Strides& x : {Strides{}, Strides::row_major(space), Strides::broadcast({kSize}, space)}) {
    const kernels::cuda::IndexMap<2> map(LoopNest<2>(space, {x, Strides::row_major(space)}));
    for (const std::int64_t index : {std::int64_t{1}, (std::int64_t{1} << 32) + 5, space.numel() - 1}) {
      std::int64_t found[2];
      map.offsets_of(index, found);
      EXPECT_EQ(found[0], index / kSize / kSize * x.of_axis[0] + index / kSize % kSize * x.of_axis[1] +
                              index % kSize * x.of_axis[2]);
      EXPECT_EQ(found[1], index);
    }
  }
}

}  // namespace
}  // namespace convoy
