// Compares kernels/optimizer_step.h on the GPU with the CPU.
#include "convoy/kernels/optimizer_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
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
using testing::unit_roundoff;
using testing::value_of;

/// The array of a parameter that is unaligned on the GPU.
enum class Unaligned { none, value, gradient, first, second, low_precision_copy };

/// The initial values of one parameter.
template <class T>
struct OptimizerParameter {
  Array<T> value, gradient, first, second;
  Unaligned unaligned;
  DType half;           // type of the low-precision copy; f32: no copy
  DType half_gradient;  // type of the gradient; f32: T

  OptimizerParameter(std::int64_t n, std::uint32_t seed, Unaligned which, DType half_dtype,
                     DType gradient_dtype = DType::f32)
      : value(Array<T>::random({n}, seed)),
        gradient(Array<T>::random({n}, seed + 1)),
        first(Array<T>::random({n}, seed + 2)),
        second(Array<T>::random({n}, seed + 3)),
        unaligned(which),
        half(half_dtype),
        half_gradient(gradient_dtype) {
    for (T& element : second) element = std::abs(element);
  }
};

/// Its arrays on a device.
template <class T>
struct OptimizerArrays {
  DeviceArray<T> value, gradient, first, second;
  DeviceArray<float16> f16, f16_gradient;
  DeviceArray<bfloat16> bf16, bf16_gradient;
  DType half, half_gradient;

  OptimizerArrays(const DeviceContext& device, const OptimizerParameter<T>& p)
      : value(device, p.value, offset(p, Unaligned::value)),
        gradient(device, p.gradient, offset(p, Unaligned::gradient)),
        first(device, p.first, offset(p, Unaligned::first)),
        second(device, p.second, offset(p, Unaligned::second)),
        f16(device, p.gradient.template to<float16>(), offset(p, Unaligned::low_precision_copy)),
        f16_gradient(device, p.gradient.template to<float16>(), offset(p, Unaligned::gradient)),
        bf16(device, p.gradient.template to<bfloat16>(), offset(p, Unaligned::low_precision_copy)),
        bf16_gradient(device, p.gradient.template to<bfloat16>(), offset(p, Unaligned::gradient)),
        half(p.half),
        half_gradient(p.half_gradient) {}

  static std::size_t offset(const OptimizerParameter<T>& p, Unaligned which) {
    return p.unaligned == which ? 1 : 0;
  }
  View low_precision_copy() const {
    return half == DType::f16 ? f16.view() : half == DType::bf16 ? bf16.view() : View{};
  }
  ConstView stored_gradient() const {
    if (half_gradient == DType::f16) return f16_gradient.view();
    return half_gradient == DType::bf16 ? bf16_gradient.view() : ConstView(gradient.view());
  }
};
template <class T>
using OptimizerModel = std::deque<OptimizerArrays<T>>;

/// Sizes around the ends of packs, blocks and pieces; some are empty, some unaligned, and one is
/// zero; more than one launch takes.
template <class T>
std::vector<OptimizerParameter<T>> make_model() {
  constexpr DType kHalves[] = {DType::f32, DType::f16, DType::bf16, DType::f32};
  std::vector<OptimizerParameter<T>> model;
  std::uint32_t seed = 1;
  const auto add = [&](std::int64_t n) {
    model.emplace_back(n, seed, static_cast<Unaligned>(model.size() % 7 % 6), kHalves[model.size() % 3],
                       kHalves[model.size() / 2 % 4]);
    seed += 4;
  };
  for (const std::int64_t n : testing::kTailSizes) add(n);
  for (const std::int64_t n : {4095, 4096, 4097, 4098, 12301}) add(n);
  for (int i = 0; i < 180; ++i) add(i % 9);
  for (T& element : model[5].value) element = 0;
  return model;
}

constexpr double kStepsBefore = 6;

/// The scalars of a step on a device.
struct OptimizerNumbers {
  DeviceArray<double> lr, grad_scale, steps, own_steps;
  DeviceArray<std::int32_t> skip;

  explicit OptimizerNumbers(const DeviceContext& device, bool skips = false)
      : lr(device, Array<double>({2}, {0.1, 0.075})),
        grad_scale(device, Array<double>({1}, {0.375})),
        steps(device, Array<double>({1}, {kStepsBefore})),
        own_steps(device, Array<double>({3}, {0, kStepsBefore - 1, 2})),
        skip(device, Array<std::int32_t>({1}, {skips ? 1 : 0})) {}
  kernels::StepScalars scalars(bool scaled) const {
    return {.lr = lr.view(),
            .grad_scale = scaled ? ConstView(grad_scale.view()) : ConstView(),
            .skip = scaled ? ConstView(skip.view()) : ConstView(),
            .steps = steps.view(),
            .own_steps = own_steps.view()};
  }
};

template <class T>
class CudaOptimizer : public testing::GpuTest {
 protected:
  Array<double> own_steps{Shape{3}};   // after the latest step
  DeviceContext gpu = Device::best();  // without a GPU, the test is skipped
  DeviceContext cpu = DeviceContext::create_cpu({.threads = 1});

  /// Runs step(stream, parameter views, scalars) on both devices, in every order of threads, and compares the
  /// results.
  template <class Slots, class Step>
  void expect_same(Slots slots, Step step, double tolerance) {
    const std::vector<OptimizerParameter<T>> start = make_model<T>();
    for (const bool scaled : {false, true}) {
      SCOPED_TRACE(scaled ? "scaled" : "not scaled");
      const auto run = [&](const DeviceContext& device, OptimizerModel<T>& model) {
        for (const OptimizerParameter<T>& p : start) model.emplace_back(device, p);
        const OptimizerNumbers numbers(device);
        on(device.stream(), [&](auto& s) { step(s, slots(model), numbers.scalars(scaled)); });
        EXPECT_EQ(numbers.steps.values()[0], kStepsBefore + 1);
        own_steps = numbers.own_steps.values();
      };
      OptimizerModel<T> expected;
      run(cpu, expected);
      std::vector<Array<T>> first_found;
      this->for_each_order([&] {
        OptimizerModel<T> held;
        run(gpu, held);
        for (std::size_t i = 0; i < held.size(); ++i) {
          SCOPED_TRACE("parameter " + std::to_string(i));
          const Array<T> found = held[i].value.values();
          expect_rounded_near(found, expected[i].value.values(), tolerance);
          expect_rounded_near(held[i].first.values(), expected[i].first.values(), tolerance);
          expect_rounded_near(held[i].second.values(), expected[i].second.values(), tolerance);
          expect_rounded_copy(found, held[i]);
          if (first_found.size() == i) first_found.push_back(found);
          testing::expect_same_bits(found, first_found[i]);
        }
      });
    }
  }

  /// Runs step(stream, parameter views, scalars) with the skip flag set, and expects no change.
  template <class Slots, class Step>
  void expect_unchanged(Slots slots, Step step) {
    const auto start = make_model<T>();
    const OptimizerNumbers numbers(gpu, /*skips=*/true);
    OptimizerModel<T> held;
    for (const OptimizerParameter<T>& p : start) held.emplace_back(gpu, p);
    std::vector<Array<float16>> copies;
    for (const OptimizerArrays<T>& p : held) copies.push_back(p.f16.values());
    on(gpu.stream(), [&](auto& s) { step(s, slots(held), numbers.scalars(true)); });
    for (std::size_t i = 0; i < held.size(); ++i) {
      SCOPED_TRACE("parameter " + std::to_string(i));
      testing::expect_same_bits(held[i].value.values(), start[i].value);
      testing::expect_same_bits(held[i].first.values(), start[i].first);
      testing::expect_same_bits(held[i].second.values(), start[i].second);
      const Array<float16> copy = held[i].f16.values();
      for (std::size_t e = 0; e < copy.size(); ++e) ASSERT_EQ(copy[e].bits, copies[i][e].bits);
    }
    EXPECT_EQ(numbers.steps.values()[0], kStepsBefore) << "a skipped step does not count";
    testing::expect_same_bits(numbers.own_steps.values(), OptimizerNumbers(cpu).own_steps.values());
  }

 private:
  static void expect_rounded_copy(const Array<T>& found, const OptimizerArrays<T>& parameter) {
    const auto expect = [&](auto copy) {
      for (std::size_t e = 0; e < found.size(); ++e)
        ASSERT_EQ(copy[e].bits, converted<std::decay_t<decltype(copy[e])>>(found[e]).bits) << "element " << e;
    };
    if (parameter.half == DType::f16) expect(parameter.f16.values());
    if (parameter.half == DType::bf16) expect(parameter.bf16.values());
  }
};

using OptimizerTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaOptimizer, OptimizerTypes);

/// momentum_of(i) returns whether parameter i has a momentum.
template <class F>
auto sgd_slots(F momentum_of) {
  return [momentum_of](auto& model) {
    std::vector<kernels::SgdSlot> slots;
    for (auto& p : model)
      slots.push_back({.parameter = p.value.view(),
                       .gradient = p.stored_gradient(),
                       .momentum = momentum_of(slots.size()) ? p.first.view() : View{},
                       .low_precision_copy = p.low_precision_copy()});
    return slots;
  };
}

// nvcc may fuse multiplications and additions, which rounds once less: a few roundings of numbers up to 4.
template <class T>
constexpr double kSgdTolerance = 4 * 4 * unit_roundoff<T>();

/// Returns the slots in groups of 20 with the options, of which every second group has another learning rate and
/// another factor of it.
/// An empty group is between them.
template <class Group, class Slots, class Options>
std::vector<Group> in_groups(const Slots& slots, const Options& options) {
  std::vector<Group> groups = {{{}, options}};
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (i % 20 == 0) groups.push_back({{}, options});
    if (groups.size() % 2 == 0) {
      groups.back().options.rate = 1;
      groups.back().options.lr_scale = 0.5 * options.lr_scale;
    }
    groups.back().slots.push_back(slots[i]);
  }
  return groups;
}

TYPED_TEST(CudaOptimizer, SgdOfHundredsOfParameters) {
  const auto check = [this](const kernels::SgdOptions& options, auto momentum_of) {
    this->expect_same(
        sgd_slots(momentum_of),
        [&](auto& stream, const std::vector<kernels::SgdSlot>& slots, const kernels::StepScalars& scalars) {
          kernels::sgd_step(stream, in_groups<kernels::SgdGroup>(slots, options), scalars);
        },
        kSgdTolerance<TypeParam>);
  };
  check({.weight_decay = 0.01}, [](std::size_t) { return false; });
  check({.momentum = 0.9, .weight_decay = 0.01}, [](std::size_t) { return true; });
  check({.momentum = 0.9, .nesterov = true}, [](std::size_t i) { return i % 5 != 0; });
}

constexpr auto adam_slots = [](auto& model) {
  std::vector<kernels::AdamSlot> slots;
  for (auto& p : model)
    slots.push_back({.parameter = p.value.view(),
                     .gradient = p.stored_gradient(),
                     .first_moment = p.first.view(),
                     .second_moment = p.second.view(),
                     .low_precision_copy = p.low_precision_copy()});
  return slots;
};

TYPED_TEST(CudaOptimizer, AdamOfHundredsOfParameters) {
  const kernels::AdamOptions adam{
      .lr_scale = 0.1, .epsilon = 1e-3, .weight_decay = 0.1};  // a learning rate of 0.01
  kernels::AdamOptions adamw = adam, rms_prop = adam;
  adamw.decoupled = true;
  rms_prop.rms_prop = true;
  for (const kernels::AdamOptions& options : {adam, adamw, rms_prop}) {
    // As for sgd_step. In addition, v, about (1 - beta2) g^2, may have the same error, which m / sqrt(v)
    // amplifies by at most lr / (2 epsilon).
    this->expect_same(
        adam_slots,
        [&](auto& stream, const std::vector<kernels::AdamSlot>& slots, const kernels::StepScalars& scalars) {
          kernels::adam_step(stream, in_groups<kernels::AdamGroup>(slots, options), scalars);
        },
        kSgdTolerance<TypeParam> * (1 + 0.01 / 2e-3));
  }
}

TYPED_TEST(CudaOptimizer, SkippedStepChangesNothing) {
  this->expect_unchanged(
      sgd_slots([](std::size_t i) { return i % 2 == 0; }),
      [](auto& stream, const std::vector<kernels::SgdSlot>& slots, const kernels::StepScalars& scalars) {
        kernels::sgd_step(stream, {{slots, {.momentum = 0.9, .weight_decay = 0.1}}}, scalars);
      });
  this->expect_unchanged(adam_slots, [](auto& stream, const std::vector<kernels::AdamSlot>& slots,
                                        const kernels::StepScalars& scalars) {
    kernels::adam_step(stream, {{slots, {.own_steps = 1, .weight_decay = 0.1}}}, scalars);
  });
}

TYPED_TEST(CudaOptimizer, PreparesAnyNumberOfGroups) {
  this->expect_same(
      sgd_slots([](std::size_t) { return true; }),
      [](auto& stream, const std::vector<kernels::SgdSlot>& slots, const kernels::StepScalars& scalars) {
        std::vector<kernels::SgdGroup> groups;  // one per parameter: more than one launch prepares
        for (const kernels::SgdSlot& slot : slots)
          groups.push_back(
              {{slot}, {.lr_scale = 1.0 / static_cast<double>(1 + groups.size()), .momentum = 0.9}});
        kernels::sgd_step(stream, groups, scalars);
      },
      kSgdTolerance<TypeParam>);
}

TYPED_TEST(CudaOptimizer, GroupsHaveTheirOwnNumbersOfSteps) {
  this->expect_same(
      adam_slots,
      [](auto& stream, const std::vector<kernels::AdamSlot>& slots, const kernels::StepScalars& scalars) {
        std::vector<kernels::AdamGroup> groups;  // more than one launch prepares
        for (const kernels::AdamSlot& slot : slots)
          groups.push_back({{slot}, {.lr_scale = 0.1, .epsilon = 1e-3, .weight_decay = 0.1}});
        groups[1].options.own_steps = 1;
        groups[groups.size() / 2].options.own_steps = 0;
        kernels::adam_step(stream, groups, scalars);
      },
      kSgdTolerance<TypeParam> * (1 + 0.01 / 2e-3));
  testing::expect_same_bits(this->own_steps, Array<double>({3}, {1, kStepsBefore, 2}));
}

TEST(CudaMixedOptimizer, AcceptsMixedParameterTypesAndEmptyLists) {
  const CudaAvailability gpus = cuda_availability();
  if (gpus.count == 0) GTEST_SKIP() << "needs a GPU: " << gpus.reason;
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const OptimizerArrays<float> narrow(gpu, OptimizerParameter<float>(100, 1, Unaligned::none, DType::f32));
  const OptimizerArrays<double> wide(gpu, OptimizerParameter<double>(100, 1, Unaligned::none, DType::bf16));
  const std::vector<kernels::SgdSlot> slots = {
      {.parameter = narrow.value.view(), .gradient = narrow.gradient.view()},
      {.parameter = wide.value.view(),
       .gradient = wide.gradient.view(),
       .low_precision_copy = wide.low_precision_copy()}};
  const kernels::SgdSlot half{.parameter = narrow.f16.view(), .gradient = narrow.f16.view()};
  const OptimizerNumbers numbers(gpu);
  const DeviceArray<double> half_lr(gpu, Array<double>({1}, {0.5}));
  kernels::StepScalars scalars = numbers.scalars(false);
  scalars.lr = half_lr.view();
  on(gpu.stream(), [&](auto& s) {
    kernels::sgd_step(s, {}, scalars);
    kernels::adam_step(s, {}, scalars);
    kernels::sgd_step(s, {{slots, {}}}, scalars);
    EXPECT_THROW(kernels::sgd_step(s, {{{half}, {}}}, scalars),
                 UsageError);  // master parameters must not be half precision
  });
  EXPECT_EQ(numbers.steps.values()[0], kStepsBefore + 3) << "a step without parameters counts";
  // 1 - 0.5 for multiples of 2^-20 is exact in both types.
  testing::expect_same_bits(narrow.value.values().to<double>(), wide.value.values());
  EXPECT_NE(narrow.value.values()[99],
            OptimizerParameter<float>(100, 1, Unaligned::none, DType::f32).value[99]);
}

class CudaStepScalars : public testing::GpuTest {
 protected:
  CpuStream cpu{{.threads = 1}};
};

TEST_F(CudaStepScalars, ClipScalesDownOnlyAboveMaxNorm) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const auto expect_same = [&](const Array<double>* norm, const auto* scale) {
    const auto coefficient = [&](auto& stream, const ConstView& from, const ConstView& by, const View& to) {
      kernels::clip_coefficient(stream, from, 1, by, to);
    };
    Array<double> expected({1});
    coefficient(cpu, norm != nullptr ? norm->view() : ConstView(),
                scale != nullptr ? scale->view() : ConstView(), expected.view());
    const DeviceArray<double> gpu_norm(gpu, norm != nullptr ? *norm : Array<double>({1}));
    const DeviceArray gpu_scale(gpu, scale != nullptr ? *scale : std::decay_t<decltype(*scale)>({1}));
    const DeviceArray<double> found(gpu, {1});
    on(gpu.stream(), [&](auto& s) {
      coefficient(s, norm != nullptr ? ConstView(gpu_norm.view()) : ConstView(),
                  scale != nullptr ? ConstView(gpu_scale.view()) : ConstView(), found.view());
    });
    testing::expect_rounded(found.values(), expected);
  };
  const Array<float> f32({1}, {1024.0f});
  const Array<double> f64({1}, {3.0});
  const Array<float>* const none = nullptr;
  for (const double value :
       {0.0, 0.5, 4.0, 4096.0, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    const Array<double> norm({1}, {value});
    expect_same(&norm, none);
    expect_same(&norm, &f32);
    expect_same(&norm, &f64);
  }
  expect_same(nullptr, &f32);
  expect_same(nullptr, &f64);
}

template <class T>
class CudaLossScale : public testing::GpuTest {};

using CudaLossScaleTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaLossScale, CudaLossScaleTypes);

TYPED_TEST(CudaLossScale, ChangesLikeOnTheCpu) {
  CpuStream cpu({.threads = 1});
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const kernels::LossScaleOptions options{
      .growth = 2, .backoff = 0.5, .interval = 2, .minimum = 512, .maximum = 3000};
  Array<TypeParam> scale({1}, {TypeParam{1024}});
  Array<std::int32_t> good({1}, {0}), skipped({1}, {0}), failed({1}, {0});
  const DeviceArray<TypeParam> gpu_scale(gpu, scale);
  const DeviceArray<std::int32_t> gpu_good(gpu, good), gpu_skipped(gpu, skipped), gpu_failed(gpu, failed);
  const auto state_of = [](auto&&... numbers) { return kernels::LossScaleView{numbers.view()...}; };
  // Up to the maximum, down to the minimum, a failure there, and up again.
  for (const std::int32_t overflows : {0, 0, 0, 0, 9, 0, 1, 1, 1, 0, 0}) {
    const Array<std::int32_t> count({1}, {overflows});
    const DeviceArray<std::int32_t> gpu_count(gpu, count);
    kernels::update_loss_scale(cpu, count.view(), state_of(scale, good, skipped, failed), options);
    on(gpu.stream(), [&](auto& s) {
      kernels::update_loss_scale(s, gpu_count.view(), state_of(gpu_scale, gpu_good, gpu_skipped, gpu_failed),
                                 options);
    });
    testing::expect_same_bits(gpu_scale.values(), scale);
    testing::expect_same_bits(gpu_good.values(), good);
    testing::expect_same_bits(gpu_skipped.values(), skipped);
    testing::expect_same_bits(gpu_failed.values(), failed);
  }
  EXPECT_EQ(failed[0], 1);
  EXPECT_EQ(scale[0], 1024);
}

}  // namespace
}  // namespace convoy
