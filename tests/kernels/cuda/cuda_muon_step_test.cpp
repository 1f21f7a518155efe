// Compares kernels/muon_step.h on the GPU with the CPU.
#include "convoy/kernels/muon_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <type_traits>
#include <vector>

#include "convoy/kernels/base/convert.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::expect_rounded_near;
using testing::expect_same_bits;
using testing::unit_roundoff;

/// The type of directions on the GPU.
template <class T>
using Direction = std::conditional_t<std::is_same_v<T, float>, bfloat16, T>;

/// Returns the slot of a Matrix or an OnGpu.
template <class Arrays>
kernels::MuonSlot slot_of(Arrays& a) {
  return {.parameter = a.value.view(),
          .gradient = a.is_half ? ConstView(a.half_gradient.view()) : ConstView(a.gradient.view()),
          .momentum = a.momentum.view(),
          .direction = a.direction.view(),
          .low_precision_copy = a.has_copy ? a.copy.view() : View{},
          .scale = 1.5};
}

/// The arrays of one matrix on the CPU.
template <class T>
struct Matrix {
  Array<T> value, gradient, momentum, direction;
  Array<bfloat16> half_gradient;
  bool is_half;  // whether the gradient is bf16
  Array<bfloat16> copy;
  bool has_copy;

  Matrix(std::int64_t rows, std::int64_t columns, std::uint32_t seed)
      : value(Array<T>::random({rows, columns}, seed)),
        gradient(Array<T>::random({rows, columns}, seed + 1)),
        momentum(Array<T>::random({rows, columns}, seed + 2)),
        direction({rows, columns}),
        half_gradient(gradient.template to<bfloat16>()),
        is_half(seed % 2 == 0),
        copy({rows, columns}),
        has_copy(seed % 3 == 0) {}

  kernels::MuonSlot slot() { return slot_of(*this); }
};

/// The same arrays on a GPU, each `offset` elements after an aligned address.
template <class T>
struct OnGpu {
  DeviceArray<T> value, gradient, momentum;
  DeviceArray<Direction<T>> direction;
  DeviceArray<bfloat16> half_gradient, copy;
  bool is_half, has_copy;

  OnGpu(const DeviceContext& gpu, const Matrix<T>& from, std::size_t offset)
      : value(gpu, from.value, offset),
        gradient(gpu, from.gradient, offset),
        momentum(gpu, from.momentum, offset),
        direction(gpu, from.value.shape(), offset),
        half_gradient(gpu, from.half_gradient, offset),
        copy(gpu, from.copy, offset),
        is_half(from.is_half),
        has_copy(from.has_copy) {}

  kernels::MuonSlot slot() const { return slot_of(*this); }
};

/// Sizes around the ends of packs, blocks and pieces, and more matrices than one launch takes: 49 for the
/// kernels of elements, 160 for the norms.
template <class T>
std::vector<Matrix<T>> make_matrices() {
  std::vector<Matrix<T>> matrices;
  std::uint32_t seed = 1;
  const auto add = [&](std::int64_t rows, std::int64_t columns) {
    matrices.emplace_back(rows, columns, seed);
    seed += 7;
  };
  for (const std::int64_t columns : {1, 31, 33, 255, 257, 1025, 4095, 4096, 4097}) add(1, columns);
  add(3, 4099);
  for (int i = 0; i < 160; ++i) add(1 + i % 3, 1 + i % 4);
  return matrices;
}

/// Returns the slots in three groups: the default, one with other options, and one that normalizes.
template <class Matrices>
std::vector<kernels::MuonGroup> groups_of(Matrices& matrices) {
  std::vector<kernels::MuonGroup> groups{
      {.slots = {}, .options = {.weight_decay = 0.1}},
      {.slots = {}, .options = {.rate = 1, .lr_scale = 0.5, .momentum = 0.5, .nesterov = false}},
      {.slots = {}, .options = {.momentum = 0.6, .normalize = true}}};
  std::size_t i = 0;
  for (auto& matrix : matrices) groups[i++ % groups.size()].slots.push_back(matrix.slot());
  return groups;
}

/// The scalars of a step on the CPU.
struct Numbers {
  Array<double> lr{{2}, {0.1, 0.075}}, grad_scale{{1}, {0.375}}, steps{{1}, {6.0}};
  Array<std::int32_t> skip{{1}, {0}};
};

template <class T>
class CudaMuonStep : public testing::GpuTest {
 protected:
  DeviceContext gpu = Device::best();  // without a GPU, the test is skipped
  CpuStream cpu{{.threads = 1}};

  /// Runs both kernels on the GPU.
  void run_on_gpu(std::deque<OnGpu<T>>& matrices, const Numbers& numbers, Array<double>& keep) const {
    const DeviceArray<double> lr(gpu, numbers.lr), grad_scale(gpu, numbers.grad_scale),
        steps(gpu, numbers.steps), factors(gpu, keep.shape());
    const DeviceArray<std::int32_t> skip(gpu, numbers.skip);
    const kernels::StepScalars scalars{
        .lr = lr.view(), .grad_scale = grad_scale.view(), .skip = skip.view(), .steps = steps.view()};
    const std::vector<kernels::MuonGroup> groups = groups_of(matrices);
    on(gpu.stream(), [&](auto& s) {
      kernels::muon_direction(s, groups, scalars, factors.view());
      kernels::muon_update(s, groups, scalars, factors.view());
    });
    EXPECT_EQ(steps.values()[0], numbers.steps[0]) << "the kernels do not count the step";
    keep = factors.values();
  }

  std::deque<OnGpu<T>> copies_of(const std::vector<Matrix<T>>& matrices, bool aligned) const {
    std::deque<OnGpu<T>> copies;
    for (std::size_t i = 0; i < matrices.size(); ++i)
      copies.emplace_back(gpu, matrices[i], aligned ? 0 : i % 3);
    return copies;
  }
};

using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaMuonStep, Types);

TYPED_TEST(CudaMuonStep, MatchesTheCpuForHundredsOfMatrices) {
  using T = TypeParam;
  std::vector<Matrix<T>> expected = make_matrices<T>();
  const std::vector<Matrix<T>> start = expected;
  Numbers numbers;
  Array<double> keep({static_cast<std::int64_t>(start.size())});
  const kernels::StepScalars scalars{.lr = numbers.lr.view(),
                                     .grad_scale = numbers.grad_scale.view(),
                                     .skip = numbers.skip.view(),
                                     .steps = numbers.steps.view()};
  const std::vector<kernels::MuonGroup> groups = groups_of(expected);
  kernels::muon_direction(this->cpu, groups, scalars, keep.view());
  kernels::muon_update(this->cpu, groups, scalars, keep.view());

  // nvcc may fuse multiplications and additions: a few roundings of numbers up to 2. Directions are at most 1,
  // and those of f32 are rounded to bf16, so that the new parameter has the error rate scale 2^-8.
  const double roundings = 8 * unit_roundoff<T>() * 2;
  const double updated = roundings + (std::is_same_v<T, float> ? 0.1 * 1.5 * 0x1p-8 : 0);
  std::vector<Array<T>> first;
  for (const bool aligned : {true, false})
    this->for_each_order([&] {
      std::deque<OnGpu<T>> found = this->copies_of(start, aligned);
      Array<double> found_keep(keep.shape());
      this->run_on_gpu(found, numbers, found_keep);
      for (std::size_t i = 0; i < found.size(); ++i) {
        SCOPED_TRACE("matrix " + std::to_string(i));
        EXPECT_NEAR(found_keep[i], keep[i], 1e-14 * keep[i]);
        expect_rounded_near(found[i].momentum.values(), expected[i].momentum, roundings);
        expect_rounded_near(found[i].direction.values(), expected[i].direction, roundings);
        const Array<T> value = found[i].value.values();
        // A normalized parameter can be larger than 2: its error grows with the factor.
        expect_rounded_near(value, expected[i].value, updated * std::max(1.0, keep[i]));
        if (found[i].has_copy) {
          const Array<bfloat16> copy = found[i].copy.values();
          for (std::size_t e = 0; e < value.size(); ++e)
            ASSERT_EQ(copy[e].bits, converted<bfloat16>(value[e]).bits);
        }
        if (first.size() == i) first.push_back(value);
        expect_same_bits(value, first[i]);  // in any order of threads and at any address
      }
    });
}

TYPED_TEST(CudaMuonStep, SkippedStepChangesNothing) {
  using T = TypeParam;
  const std::vector<Matrix<T>> start = make_matrices<T>();
  std::deque<OnGpu<T>> found = this->copies_of(start, true);
  Numbers numbers;
  numbers.skip[0] = 1;
  Array<double> keep({static_cast<std::int64_t>(start.size())});
  this->run_on_gpu(found, numbers, keep);
  for (std::size_t i = 0; i < found.size(); ++i) {
    expect_same_bits(found[i].value.values(), start[i].value);
    expect_same_bits(found[i].momentum.values(), start[i].momentum);
    expect_same_bits(found[i].copy.values().template to<float>(), start[i].copy.template to<float>());
  }
}

TYPED_TEST(CudaMuonStep, ZeroGradientGivesAZeroDirection) {
  using T = TypeParam;
  std::vector<Matrix<T>> start(1, Matrix<T>(4, 5, 1));
  for (Array<T>* array : {&start[0].gradient, &start[0].momentum})
    std::fill(array->begin(), array->end(), T{0});
  std::deque<OnGpu<T>> found = this->copies_of(start, true);
  Array<double> keep({1});
  this->run_on_gpu(found, Numbers(), keep);
  for (const auto& value : found[0].direction.values()) EXPECT_EQ(testing::value_of(value), 0);
}

TYPED_TEST(CudaMuonStep, AcceptsNoMatrix) {
  std::deque<OnGpu<TypeParam>> none;
  Array<double> keep({0});
  this->run_on_gpu(none, Numbers(), keep);
}

}  // namespace
}  // namespace convoy
