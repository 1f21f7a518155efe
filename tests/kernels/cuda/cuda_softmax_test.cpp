// Tests of kernels/softmax.h on the GPU: short rows, and huge and non-finite logits. The op cases test
// other values.
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ComputeType;
using testing::DeviceArray;
using testing::unit_roundoff;
using testing::value_of;

/// Returns the error of exp(x - offset) and of its sum over a row, in units of the roundoff. x - offset is up
/// to 8 and rounded. exp has an error of at most 2 ulp (CUDA C++ Programming Guide, "Mathematical
/// Functions"). A thread of a warp sums a 32nd of the row; at most 5 + 16 additions follow.
double exp_tolerance(std::int64_t classes) { return 8 + 4 + static_cast<double>(classes) / 32 + 21; }

template <class T>
class CudaCrossEntropy : public testing::GpuTest {
 protected:
  static constexpr double kUnit = unit_roundoff<ComputeType<T>>();
  DeviceContext gpu = Device::best();  // without a GPU, the test is skipped
  CpuStream cpu{{.threads = 1}};

  /// Returns logits in [-4, 4), with ties.
  static Array<T> logits(Shape shape) {
    auto x = Array<T>::random(shape, 1);
    for (T& value : x) value = static_cast<T>(std::round(value_of(value) * 256) / 64);
    return x;
  }
  static Array<std::int32_t> labels(const Shape& shape) {
    Array<std::int32_t> out({shape[0]});
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<std::int32_t>((i * 7 + 3) % static_cast<std::size_t>(shape[1]));
    return out;
  }
};

using LossTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaCrossEntropy, LossTypes);

// One block computes up to 1,024 rows of up to 16 classes, and adds their losses.
TYPED_TEST(CudaCrossEntropy, ShortRowsHaveTheSameBitsInAnyBatch) {
  using T = TypeParam;
  using C = ComputeType<T>;
  for (const std::int64_t classes : {1, 2, 7, 10, 15, 16})
    for (const double smoothing : {0.0, 0.1}) {
      SCOPED_TRACE(std::to_string(classes) + " classes, smoothing " + std::to_string(smoothing));
      const DeviceArray<T> x(this->gpu, this->logits({1025, classes}));
      const DeviceArray<std::int32_t> labels(this->gpu, this->labels({1025, classes}));
      const auto results_of = [&](std::int64_t rows) {
        View logits = x.view(), of_rows = labels.view();
        logits.shape = {rows, classes};
        of_rows.shape = {rows};
        const DeviceArray<C> losses(this->gpu, {rows}), log_sum_exp(this->gpu, {rows, 2}),
            total(this->gpu, {1}), count(this->gpu, {1});
        const DeviceArray<std::int32_t> correct(this->gpu, {rows});
        on(this->gpu.stream(), [&](auto& s) {
          kernels::softmax_cross_entropy_forward(s, logits, {.of_rows = of_rows, .smoothing = smoothing},
                                                 losses.view(), log_sum_exp.view(), correct.view(),
                                                 total.view(), count.view());
        });
        const auto of_row = correct.values();
        EXPECT_EQ(count.values()[0], static_cast<C>(std::accumulate(of_row.begin(), of_row.end(), 0)));
        return std::tuple(losses.values(), log_sum_exp.values(), correct.values());
      };
      const auto [losses, log_sum_exp, correct] = results_of(1025);
      const auto [short_losses, short_log_sum_exp, short_correct] = results_of(1024);
      for (std::size_t row = 0; row < 1024; ++row) {
        ASSERT_EQ(short_losses[row], losses[row]) << row;
        ASSERT_EQ(short_log_sum_exp[2 * row], log_sum_exp[2 * row]) << row;
        ASSERT_EQ(short_log_sum_exp[2 * row + 1], log_sum_exp[2 * row + 1]) << row;
        ASSERT_EQ(short_correct[row], correct[row]) << row;
      }
    }
}

/// Expects finite values to agree within the relative error `relative`, and other values to be the same.
template <class C>
void expect_same_kind(const Array<C>& found, const Array<double>& expected, double relative) {
  for (std::size_t e = 0; e < found.size(); ++e) {
    const double value = value_of(found[e]);
    const bool same = value == expected[e] || (std::isnan(value) && std::isnan(expected[e]));
    EXPECT_TRUE(same || std::abs(value - expected[e]) <= relative * std::abs(expected[e]))
        << "element " << e << ": " << value << ", not " << expected[e];
  }
}

/// Returns the sums of pairs, [N] for [N, 2].
template <class C>
Array<double> sums_of_pairs(const Array<C>& pairs) {
  Array<double> sums({pairs.shape()[0]});
  for (std::size_t row = 0; row < sums.size(); ++row)
    sums[row] =
        static_cast<double>(value_of(pairs[2 * row])) + static_cast<double>(value_of(pairs[2 * row + 1]));
  return sums;
}

TYPED_TEST(CudaCrossEntropy, HandlesHugeAndNonFiniteLogits) {
  using T = TypeParam;
  using C = ComputeType<T>;
  const T minus_infinity = static_cast<T>(-std::numeric_limits<float>::infinity());
  const T nan = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  for (const std::int64_t classes : {8, 1030}) {
    const Shape shape{7, classes}, rows{7};
    Array<T> x(shape, static_cast<T>(-59904.0f));
    const auto row = [&](int r) { return x.begin() + r * classes; };
    row(0)[3] = static_cast<T>(59904.0f);                            // exp overflows for both
    std::fill_n(row(1), classes, minus_infinity), row(1)[5] = T(2);  // all classes but one are masked
    std::fill_n(row(2), classes, minus_infinity);                    // all classes are masked
    row(3)[0] = nan;
    row(4)[6] = nan;
    row(5)[2] = static_cast<T>(std::numeric_limits<float>::infinity());
    row(6)[1] = static_cast<T>(-57344.0f);  // the only class with a probability above 0
    const Array<std::int32_t> labels(rows, {3, 5, 0, 0, 6, 2, 1});
    for (const double smoothing : {0.0, 0.5}) {
      SCOPED_TRACE(smoothing);
      Array<double> losses(rows), log_sum_exp({rows[0], 2});
      Array<std::int32_t> correct(rows);
      Array<double> total({1});
      const auto target_of = [smoothing](const ConstView& of_rows) {
        return kernels::CrossEntropyTarget{.of_rows = of_rows, .smoothing = smoothing, .scale = 1.0 / 3};
      };
      kernels::softmax_cross_entropy_forward(this->cpu, x.template to<double>().view(),
                                             target_of(labels.view()), losses.view(), log_sum_exp.view(),
                                             correct.view(), total.view());
      const DeviceArray<T> gpu_x(this->gpu, x);
      const DeviceArray<std::int32_t> gpu_labels(this->gpu, labels);
      const DeviceArray<C> gpu_losses(this->gpu, rows), gpu_log_sum_exp(this->gpu, {rows[0], 2});
      const DeviceArray<C> gpu_total(this->gpu, {1});
      const DeviceArray<std::int32_t> gpu_correct(this->gpu, rows);
      on(this->gpu.stream(), [&](auto& s) {
        kernels::softmax_cross_entropy_forward(s, gpu_x.view(), target_of(gpu_labels.view()),
                                               gpu_losses.view(), gpu_log_sum_exp.view(), gpu_correct.view(),
                                               gpu_total.view());
      });
      // With smoothing, huge numbers are summed: in f64, 103 rounded products one after another.
      const double relative =
          this->kUnit * exp_tolerance(classes) + 2 * static_cast<double>(classes) * unit_roundoff<double>();
      expect_same_kind(gpu_losses.values(), losses, relative);
      expect_same_kind(sums_of_pairs(gpu_log_sum_exp.values()), sums_of_pairs(log_sum_exp), relative);
      testing::expect_same_bits(gpu_correct.values(), correct);
    }
    Array<double> y(shape);
    kernels::softmax(this->cpu, x.template to<double>().view(), y.view());
    const DeviceArray<T> gpu_x(this->gpu, x), gpu_y(this->gpu, shape);
    on(this->gpu.stream(), [&](auto& s) { kernels::softmax(s, gpu_x.view(), gpu_y.view()); });
    expect_same_kind(gpu_y.values(), y, unit_roundoff<T>());
  }
}

}  // namespace
}  // namespace convoy
