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

/// The initial values of one matrix.
template <class T>
struct Matrix {
  Array<T> value, gradient, momentum;
  bool is_half;  // whether the gradient is bf16
  bool has_copy;

  Matrix(std::int64_t rows, std::int64_t columns, std::uint32_t seed)
      : value(Array<T>::random({rows, columns}, seed)),
        gradient(Array<T>::random({rows, columns}, seed + 1)),
        momentum(Array<T>::random({rows, columns}, seed + 2)),
        is_half(seed % 2 == 0),
        has_copy(seed % 3 == 0) {}
};

/// Its arrays on a device, each `offset` elements after an aligned address. D: the type of directions.
template <class T, class D>
struct MuonArrays {
  DeviceArray<T> value, gradient, momentum;
  DeviceArray<D> direction;
  DeviceArray<bfloat16> half_gradient, copy;
  bool is_half, has_copy;

  MuonArrays(const DeviceContext& device, const Matrix<T>& from, std::size_t offset)
      : value(device, from.value, offset),
        gradient(device, from.gradient, offset),
        momentum(device, from.momentum, offset),
        direction(device, from.value.shape(), offset),
        half_gradient(device, from.gradient.template to<bfloat16>(), offset),
        copy(device, Array<bfloat16>(from.value.shape()), offset),
        is_half(from.is_half),
        has_copy(from.has_copy) {}

  kernels::MuonSlot slot() const {
    return {.parameter = value.view(),
            .gradient = is_half ? ConstView(half_gradient.view()) : ConstView(gradient.view()),
            .momentum = momentum.view(),
            .direction = direction.view(),
            .low_precision_copy = has_copy ? copy.view() : View{},
            .scale = 1.5};
  }
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

/// The arrays of all matrices, and the factors of the parameters after run().
template <class T, class D>
struct MuonStep {
  DeviceContext device;
  std::deque<MuonArrays<T, D>> matrices;
  Array<double> keep;

  MuonStep(const DeviceContext& on_device, const std::vector<Matrix<T>>& start, bool aligned = true)
      : device(on_device), keep({static_cast<std::int64_t>(start.size())}) {
    for (std::size_t i = 0; i < start.size(); ++i)
      matrices.emplace_back(device, start[i], aligned ? 0 : i % 3);
  }
  /// Calls both kernels.
  void run(bool skips = false) {
    const DeviceArray<double> lr(device, Array<double>({2}, {0.1, 0.075})),
        grad_scale(device, Array<double>({1}, {0.375})), steps(device, Array<double>({1}, {6.0})),
        factors(device, keep.shape());
    const DeviceArray<std::int32_t> skip(device, Array<std::int32_t>({1}, {skips ? 1 : 0}));
    const kernels::StepScalars scalars{
        .lr = lr.view(), .grad_scale = grad_scale.view(), .skip = skip.view(), .steps = steps.view()};
    const std::vector<kernels::MuonGroup> groups = groups_of(matrices);
    on(device.stream(), [&](auto& s) {
      kernels::muon_direction(s, groups, scalars, factors.view());
      kernels::muon_update(s, groups, scalars, factors.view());
    });
    EXPECT_EQ(steps.values()[0], 6) << "the kernels do not count the step";
    keep = factors.values();
  }
};

template <class T>
class CudaMuonStep : public testing::GpuTest {
 protected:
  using OnGpu = MuonStep<T, Direction<T>>;
  DeviceContext gpu = Device::best();  // without a GPU, the test is skipped
};

using MuonTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaMuonStep, MuonTypes);

TYPED_TEST(CudaMuonStep, MatchesTheCpuForHundredsOfMatrices) {
  using T = TypeParam;
  const std::vector<Matrix<T>> start = make_matrices<T>();
  MuonStep<T, T> expected(DeviceContext::create_cpu({.threads = 1}), start);
  expected.run();
  // nvcc may fuse multiplications and additions: a few roundings of numbers up to 2. Directions are at most 1,
  // and those of f32 are rounded to bf16, so that the new parameter has the error rate scale 2^-8.
  const double roundings = 8 * unit_roundoff<T>() * 2;
  const double updated = roundings + (std::is_same_v<T, float> ? 0.1 * 1.5 * 0x1p-8 : 0);
  std::vector<Array<T>> first;
  for (const bool aligned : {true, false})
    this->for_each_order([&] {
      typename TestFixture::OnGpu found(this->gpu, start, aligned);
      found.run();
      for (std::size_t i = 0; i < start.size(); ++i) {
        SCOPED_TRACE("matrix " + std::to_string(i));
        const auto& on_gpu = found.matrices[i];
        const auto& on_cpu = expected.matrices[i];
        EXPECT_NEAR(found.keep[i], expected.keep[i], 1e-14 * expected.keep[i]);
        expect_rounded_near(on_gpu.momentum.values(), on_cpu.momentum.values(), roundings);
        expect_rounded_near(on_gpu.direction.values(), on_cpu.direction.values(), roundings);
        const Array<T> value = on_gpu.value.values();
        // A normalized parameter can be larger than 2: its error grows with the factor.
        expect_rounded_near(value, on_cpu.value.values(), updated * std::max(1.0, expected.keep[i]));
        if (on_gpu.has_copy) {
          const Array<bfloat16> copy = on_gpu.copy.values();
          for (std::size_t e = 0; e < value.size(); ++e)
            ASSERT_EQ(copy[e].bits, converted<bfloat16>(value[e]).bits);
        }
        if (first.size() == i) first.push_back(value);
        expect_same_bits(value, first[i]);  // in any order of threads and at any address
      }
    });
}

TYPED_TEST(CudaMuonStep, SkippedStepChangesNothing) {
  const std::vector<Matrix<TypeParam>> start = make_matrices<TypeParam>();
  typename TestFixture::OnGpu found(this->gpu, start);
  found.run(/*skips=*/true);
  for (std::size_t i = 0; i < start.size(); ++i) {
    expect_same_bits(found.matrices[i].value.values(), start[i].value);
    expect_same_bits(found.matrices[i].momentum.values(), start[i].momentum);
    for (const bfloat16 element : found.matrices[i].copy.values()) EXPECT_EQ(element.bits, 0);
  }
}

TYPED_TEST(CudaMuonStep, ZeroGradientGivesAZeroDirection) {
  using T = TypeParam;
  std::vector<Matrix<T>> start(1, Matrix<T>(4, 5, 1));
  for (Array<T>* array : {&start[0].gradient, &start[0].momentum})
    std::fill(array->begin(), array->end(), T{0});
  typename TestFixture::OnGpu found(this->gpu, start);
  found.run();
  for (const auto& value : found.matrices[0].direction.values()) EXPECT_EQ(testing::value_of(value), 0);
}

TYPED_TEST(CudaMuonStep, AcceptsNoMatrix) { typename TestFixture::OnGpu(this->gpu, {}).run(); }

}  // namespace
}  // namespace convoy
