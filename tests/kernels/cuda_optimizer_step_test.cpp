// CPU and GPU agree: kernels/optimizer_step.h.
#include "kernels/optimizer_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <vector>

#include "kernels/convert.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::expect_rounded_near;
using testing::unit_roundoff;
using testing::value_of;

/// Which of a parameter's arrays begins off the alignment, on the GPU.
enum class Unaligned { none, value, gradient, first, second, half_copy };

/// The arrays of one parameter.
template <class T>
struct Parameter {
  Array<T> value, gradient, first, second;
  Unaligned unaligned;
  DType half;  // of its copy; f32: it has none

  Parameter(std::int64_t n, std::uint32_t seed, Unaligned which, DType half_dtype)
      : value(Array<T>::random({n}, seed)),
        gradient(Array<T>::random({n}, seed + 1)),
        first(Array<T>::random({n}, seed + 2)),
        second(Array<T>::random({n}, seed + 3)),
        unaligned(which),
        half(half_dtype) {
    for (T& element : second) element = std::abs(element);
  }

  View half_copy() const { return {}; }  // a GPU's is compared with its own parameter
};

/// The same on a GPU.
template <class T>
struct OnGpu {
  DeviceArray<T> value, gradient, first, second;
  DeviceArray<float16> f16;
  DeviceArray<bfloat16> bf16;
  DType half;

  OnGpu(const Device& gpu, const Parameter<T>& p)
      : value(gpu, p.value, offset(p, Unaligned::value)),
        gradient(gpu, p.gradient, offset(p, Unaligned::gradient)),
        first(gpu, p.first, offset(p, Unaligned::first)),
        second(gpu, p.second, offset(p, Unaligned::second)),
        f16(gpu, p.value.shape(), offset(p, Unaligned::half_copy)),
        bf16(gpu, p.value.shape(), offset(p, Unaligned::half_copy)),
        half(p.half) {}

  static std::size_t offset(const Parameter<T>& p, Unaligned which) { return p.unaligned == which ? 1 : 0; }
  View half_copy() const {
    return half == DType::f16 ? f16.view() : half == DType::bf16 ? bf16.view() : View{};
  }
};

/// Sizes at which packs, blocks and pieces end, some empty, some off the alignment; more than a launch takes.
template <class T>
std::vector<Parameter<T>> make_model() {
  constexpr DType kHalves[] = {DType::f32, DType::f16, DType::bf16};
  std::vector<Parameter<T>> model;
  std::uint32_t seed = 1;
  const auto add = [&](std::int64_t n) {
    model.emplace_back(n, seed, static_cast<Unaligned>(model.size() % 7 % 6), kHalves[model.size() % 3]);
    seed += 4;
  };
  for (const std::int64_t n : testing::kTailSizes) add(n);
  for (const std::int64_t n : {4095, 4096, 4097, 4098, 12301}) add(n);
  for (int i = 0; i < 180; ++i) add(i % 9);
  return model;
}

template <class T>
class CudaOptimizer : public testing::GpuTest {
 protected:
  Device gpu = Device::best();  // without a GPU the test is skipped
  CpuStream cpu{{.threads = 1}};

  /// step(stream, parameter views, grad_scale) on both devices, in every order.
  template <class Slots, class Step>
  void expect_same(Slots slots, Step step, double tolerance) {
    for (const bool scaled : {false, true}) {
      SCOPED_TRACE(scaled ? "scaled" : "not scaled");
      const Array<double> scale({1}, {0.375});
      auto expected = make_model<T>();
      const auto start = expected;
      step(cpu, slots(expected), scaled ? scale.view() : ConstView());
      const DeviceArray<double> gpu_scale(gpu, scale);
      std::vector<Array<T>> first_found;
      this->for_each_order([&] {
        std::deque<OnGpu<T>> held;
        for (const Parameter<T>& p : start) held.emplace_back(gpu, p);
        on(gpu.stream(), [&](auto& s) { step(s, slots(held), scaled ? gpu_scale.view() : ConstView()); });
        for (std::size_t i = 0; i < held.size(); ++i) {
          SCOPED_TRACE("parameter " + std::to_string(i));
          const Array<T> found = held[i].value.values();
          expect_rounded_near(found, expected[i].value, tolerance);
          expect_rounded_near(held[i].first.values(), expected[i].first, tolerance);
          expect_rounded_near(held[i].second.values(), expected[i].second, tolerance);
          expect_rounded_copy(found, held[i]);
          if (first_found.size() == i) first_found.push_back(found);
          testing::expect_same_bits(found, first_found[i]);
        }
      });
    }
  }

 private:
  static void expect_rounded_copy(const Array<T>& found, const OnGpu<T>& parameter) {
    const auto expect = [&](auto copy) {
      for (std::size_t e = 0; e < found.size(); ++e)
        ASSERT_EQ(copy[e].bits, converted<std::decay_t<decltype(copy[e])>>(found[e]).bits) << "element " << e;
    };
    if (parameter.half == DType::f16) expect(parameter.f16.values());
    if (parameter.half == DType::bf16) expect(parameter.bf16.values());
  }
};

using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaOptimizer, Types);

/// momentum_of(i): whether parameter i has one.
template <class F>
auto sgd_slots(F momentum_of) {
  return [momentum_of](auto& model) {
    std::vector<SgdSlot> slots;
    for (auto& p : model)
      slots.push_back({.parameter = p.value.view(),
                       .gradient = p.gradient.view(),
                       .momentum = momentum_of(slots.size()) ? p.first.view() : View{},
                       .half_copy = p.half_copy()});
    return slots;
  };
}

// nvcc may fuse products with sums, which then are rounded once less: a few roundings of numbers up to 4.
template <class T>
constexpr double kSgdTolerance = 4 * 4 * unit_roundoff<T>();

TYPED_TEST(CudaOptimizer, SgdOfHundredsOfParameters) {
  const auto check = [this](const SgdOptions& options, auto momentum_of) {
    this->expect_same(
        sgd_slots(momentum_of),
        [&](auto& stream, const std::vector<SgdSlot>& slots, const ConstView& scale) {
          sgd_step(stream, slots, scale, options);
        },
        kSgdTolerance<TypeParam>);
  };
  check({.lr = 0.1, .weight_decay = 0.01}, [](std::size_t) { return false; });
  check({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01}, [](std::size_t) { return true; });
  check({.lr = 0.1, .momentum = 0.9, .nesterov = true}, [](std::size_t i) { return i % 5 != 0; });
}

TYPED_TEST(CudaOptimizer, AdamOfHundredsOfParameters) {
  const auto slots_of = [](auto& model) {
    std::vector<AdamSlot> slots;
    for (auto& p : model)
      slots.push_back({.parameter = p.value.view(),
                       .gradient = p.gradient.view(),
                       .first_moment = p.first.view(),
                       .second_moment = p.second.view(),
                       .half_copy = p.half_copy()});
    return slots;
  };
  for (const bool decoupled : {false, true}) {
    const AdamOptions options{
        .lr = 0.01, .epsilon = 1e-3, .weight_decay = 0.1, .decoupled = decoupled, .step = 7};
    // As for sgd_step. Besides, v of about (1 - beta2) g^2 may have lost as much, which m / sqrt(v) shows at
    // most lr / 2 epsilon times as large.
    this->expect_same(
        slots_of,
        [&](auto& stream, const std::vector<AdamSlot>& slots, const ConstView& scale) {
          adam_step(stream, slots, scale, options);
        },
        kSgdTolerance<TypeParam> * (1 + 0.01 / 2e-3));
  }
}

TEST(CudaMixedOptimizer, TakesParametersOfBothTypesAtOnceAndNone) {
  const CudaAvailability gpus = cuda_availability();
  if (gpus.count == 0) GTEST_SKIP() << gpus.reason;
  const Device gpu = Device::cuda(0);
  const OnGpu<float> narrow(gpu, Parameter<float>(100, 1, Unaligned::none, DType::f32));
  const OnGpu<double> wide(gpu, Parameter<double>(100, 1, Unaligned::none, DType::bf16));
  const SgdSlot slots[] = {
      {.parameter = narrow.value.view(), .gradient = narrow.gradient.view()},
      {.parameter = wide.value.view(), .gradient = wide.gradient.view(), .half_copy = wide.half_copy()}};
  const SgdSlot half{.parameter = narrow.f16.view(), .gradient = narrow.f16.view()};
  on(gpu.stream(), [&](auto& s) {
    sgd_step(s, {}, ConstView(), {});
    adam_step(s, {}, ConstView(), {});
    sgd_step(s, slots, ConstView(), {.lr = 0.5});
    EXPECT_THROW(sgd_step(s, {&half, 1}, ConstView(), {}), UsageError);  // master parameters are no halves
  });
  // 1 - 0.5 of multiples of 2^-20: exact in both.
  testing::expect_same_bits(narrow.value.values().to<double>(), wide.value.values());
  EXPECT_NE(narrow.value.values()[99], Parameter<float>(100, 1, Unaligned::none, DType::f32).value[99]);
}

class CudaClipCoefficient : public testing::GpuTest {};

TEST_F(CudaClipCoefficient, ShrinksOnlyWhatIsTooLong) {
  CpuStream cpu({.threads = 1});
  const Device gpu = Device::cuda(0);
  for (const double norm : {0.0, 0.5, 4.0, static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    const Array<double> from({1}, {norm});
    Array<double> expected({1});
    clip_coefficient(cpu, from.view(), 1, expected.view());
    const DeviceArray<double> gpu_from(gpu, from), found(gpu, {1});
    on(gpu.stream(), [&](auto& s) { clip_coefficient(s, gpu_from.view(), 1, found.view()); });
    testing::expect_rounded(found.values(), expected);
  }
}

}  // namespace
}  // namespace convoy
