// Tests of kernels/gather.h on the CPU: results do not depend on the number of threads, and sums are rounded
// once.
#include "convoy/kernels/gather.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;
using testing::expect_same_bits;

constexpr std::int64_t kTerms = 3000, kDestinations = 500, kColumns = 300;  // enough for several threads

Array<std::int32_t> repeated_indices() {
  Array<std::int32_t> indices({kTerms});
  for (std::size_t k = 0; k < indices.size();
       ++k)  // every second term has index 7, and most indices have none
    indices[k] = k % 2 == 0 ? 7 : static_cast<std::int32_t>(k * k % 97);
  return indices;
}

template <class T>
Array<T> sums(int threads, GradMode mode) {
  CpuStream stream({.threads = threads});
  const Array<std::int32_t> indices = repeated_indices();
  const auto dy = Array<T>::random({2, kTerms, kColumns}, 1);
  auto dx = Array<T>::random({2, kDestinations, kColumns}, 2);
  kernels::index_select_backward(stream, dy.view(), indices.view(), dx.grad(mode));
  return dx;
}

TEST(Gather, SumsDoNotDependOnThreads) {
  for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
    expect_same_bits(sums<float>(1, mode), sums<float>(3, mode));
    expect_same_bits(sums<bfloat16>(1, mode), sums<bfloat16>(3, mode));
  }
}

TEST(Gather, SumsAreRoundedOnce) {
  const Array<std::int32_t> indices = repeated_indices();
  const auto dy = Array<float>::random({2, kTerms, kColumns}, 1);
  Array<double> expected({2, kDestinations, kColumns});
  for (std::size_t slab = 0; slab < 2; ++slab)
    for (std::size_t k = 0; k < kTerms; ++k)
      for (std::size_t d = 0; d < kColumns; ++d)
        expected[(slab * kDestinations + static_cast<std::size_t>(indices[k])) * kColumns + d] +=
            static_cast<double>(dy[(slab * kTerms + k) * kColumns + d]);
  expect_same_bits(sums<float>(1, GradMode::overwrite), expected.to<float>());
}

TEST(Gather, SelectionDoesNotDependOnThreads) {
  const Array<std::int32_t> indices = repeated_indices();
  const auto x = Array<float>::random({2, kDestinations, kColumns}, 1);
  Array<float> one({2, kTerms, kColumns}), three({2, kTerms, kColumns});
  CpuStream single({.threads = 1}), several({.threads = 3});
  kernels::index_select_forward(single, x.view(), indices.view(), one.view());
  kernels::index_select_forward(several, x.view(), indices.view(), three.view());
  expect_same_bits(one, three);
  EXPECT_EQ(one[kColumns + 5], x[static_cast<std::size_t>(indices[1]) * kColumns + 5]);
}

}  // namespace
}  // namespace convoy
