// Tests of kernels/top_k.h on the CPU.
#include "convoy/kernels/top_k.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;
using Positions = std::vector<std::int32_t>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class T>
Positions largest(const Array<T>& x, std::int64_t k) {
  CpuStream stream({.threads = 1});
  Array<std::int32_t> positions({k});
  kernels::top_k(stream, x.view(), positions.view());
  Positions found;
  for (std::size_t i = 0; i < positions.size(); ++i) found.push_back(positions[i]);
  return found;
}

TEST(TopK, ChoosesTheLargestElementsInAscendingOrder) {
  const Array<float> x({6}, {3, -1, 7, 0, 5, -kInfinity});
  EXPECT_EQ(largest(x, 0), Positions{});
  EXPECT_EQ(largest(x, 1), (Positions{2}));
  EXPECT_EQ(largest(x, 3), (Positions{0, 2, 4}));
  EXPECT_EQ(largest(x, 5), (Positions{0, 1, 2, 3, 4}));
  EXPECT_EQ(largest(x, 6), (Positions{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(largest(x.to<double>(), 3), (Positions{0, 2, 4}));
  EXPECT_EQ(largest(x.to<bfloat16>(), 3), (Positions{0, 2, 4}));
}

TEST(TopK, ChoosesTheFirstOfEqualElements) {
  EXPECT_EQ(largest(Array<float>({5}, {1, 2, 1, 2, 2}), 2), (Positions{1, 3}));
  EXPECT_EQ(largest(Array<float>({5}, {0.0F, -0.0F, 0, 0, 0}), 2), (Positions{0, 1}));
  EXPECT_EQ(largest(Array<float>({4}, {kInfinity, 1, kInfinity, kInfinity}), 2), (Positions{0, 2}));
}

TEST(TopK, NanIsTheLargestElement) {
  EXPECT_EQ(largest(Array<float>({5}, {1, kNan, kInfinity, kNan, 2}), 1), (Positions{1}));
  EXPECT_EQ(largest(Array<float>({5}, {1, kNan, kInfinity, kNan, 2}), 3), (Positions{1, 2, 3}));
}

}  // namespace
}  // namespace convoy
