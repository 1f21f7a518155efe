// Tests of kernels/attention.h on the CPU with several threads. The other tests of attention are op cases.
#include "convoy/kernels/attention.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tests/kernels/array.h"
#include "tests/kernels/rounding.h"

namespace convoy {
namespace {

using testing::Array;

// More than one block of queries and of keys.
constexpr std::int64_t kBatch = 2, kQueries = 150, kKeys = 300, kDepth = 8, kWidth = 5;

template <class T>
struct Results {
  Array<T> y{{kBatch, kQueries, kWidth}};
  Array<T> dq{{kBatch, kQueries, kDepth}}, dk{{kBatch, kKeys, kDepth}}, dv{{kBatch, kKeys, kWidth}};
};

template <class T>
Results<T> results(int threads, bool causal) {
  CpuStream stream({.threads = threads});
  const kernels::AttentionRule rule{.scale = 0.5, .causal = causal};
  const auto q = Array<T>::random({kBatch, kQueries, kDepth}, 1),
             k = Array<T>::random({kBatch, kKeys, kDepth}, 2),
             v = Array<T>::random({kBatch, kKeys, kWidth}, 3),
             dy = Array<T>::random({kBatch, kQueries, kWidth}, 4);
  Results<T> out;
  Array<T> log_sum_exp({kBatch, kQueries, 2});
  kernels::attention_forward(stream, q.view(), k.view(), v.view(), rule, out.y.view(), log_sum_exp.view());
  const ConstView y = out.y.view(), log_sums = log_sum_exp.view();
  for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate})
    kernels::attention_backward(stream, dy.view(), q.view(), k.view(), v.view(), y, log_sums, rule,
                                out.dq.grad(mode), out.dk.grad(mode), out.dv.grad(mode));
  return out;
}

// With more threads than heads, the backward pass computes the scores twice.
TEST(Attention, DoesNotDependOnTheNumberOfThreads) {
  for (const bool causal : {false, true}) {
    const auto serial = results<float>(1, causal), parallel = results<float>(5, causal);
    testing::expect_same_bits(parallel.y, serial.y);
    testing::expect_same_bits(parallel.dq, serial.dq);
    testing::expect_same_bits(parallel.dk, serial.dk);
    testing::expect_same_bits(parallel.dv, serial.dv);
  }
}

// Also over several blocks of keys, whose largest scores differ.
TEST(Attention, MatchesItsDefinition) {
  const auto q = Array<double>::random({kBatch, kQueries, kDepth}, 1),
             k = Array<double>::random({kBatch, kKeys, kDepth}, 2),
             v = Array<double>::random({kBatch, kKeys, kWidth}, 3);
  for (const bool causal : {false, true}) {
    const Results<double> found = results<double>(2, causal);
    for (std::int64_t row = 0; row < kBatch * kQueries; ++row) {
      const std::int64_t matrix = row / kQueries;
      std::array<double, kWidth> expected{};
      double sum = 0;
      for (std::int64_t key = 0; key < (causal ? row % kQueries + 1 : kKeys); ++key) {
        double score = 0;
        for (std::int64_t i = 0; i < kDepth; ++i)
          score += q.begin()[row * kDepth + i] * k.begin()[(matrix * kKeys + key) * kDepth + i];
        const double weight = std::exp(0.5 * score);
        sum += weight;
        for (std::int64_t i = 0; i < kWidth; ++i)
          expected[static_cast<std::size_t>(i)] += weight * v.begin()[(matrix * kKeys + key) * kWidth + i];
      }
      for (std::int64_t i = 0; i < kWidth; ++i)  // sums of up to 300 terms: 4 eps sqrt(300) < 2^-46
        EXPECT_NEAR(found.y.begin()[row * kWidth + i], expected[static_cast<std::size_t>(i)] / sum, 0x1p-46);
    }
  }
}

}  // namespace
}  // namespace convoy
