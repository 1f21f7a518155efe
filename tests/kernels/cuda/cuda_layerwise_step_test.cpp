// Compares kernels/optimizer_step.h on the GPU with the CPU.
#include "convoy/kernels/optimizer_step.h"

#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::expect_same_bits;
using testing::unit_roundoff;

/// Returns the slot of a Parameter or an OnGpu, for LARS and LAMB.
template <class Arrays>
ConstView gradient_of(Arrays& a) {
  return a.is_half ? ConstView(a.half_gradient.view()) : ConstView(a.gradient.view());
}
template <class Arrays>
void add_slot(std::vector<kernels::SgdSlot>& to, Arrays& a) {
  to.push_back({a.value.view(), gradient_of(a), a.first.view(), a.has_copy ? a.copy.view() : View{}});
}
template <class Arrays>
void add_slot(std::vector<kernels::AdamSlot>& to, Arrays& a) {
  to.push_back(
      {a.value.view(), gradient_of(a), a.first.view(), a.second.view(), a.has_copy ? a.copy.view() : View{}});
}

/// The arrays of one parameter on the CPU.
template <class T>
struct Parameter {
  Array<T> value, gradient, first, second;
  Array<bfloat16> half_gradient, copy;
  bool is_half, has_copy;

  Parameter(std::int64_t size, std::uint32_t seed)
      : value(Array<T>::random({size}, seed)),
        gradient(Array<T>::random({size}, seed + 1)),
        first(Array<T>::random({size}, seed + 2)),
        second(Array<T>::random({size}, seed + 3)),
        half_gradient(gradient.template to<bfloat16>()),
        copy({size}),
        is_half(seed % 2 == 0),
        has_copy(seed % 3 == 0) {
    for (T& element : second) element = std::abs(element);  // a mean of squares
  }
};

/// The same arrays on a GPU, each `offset` elements after an aligned address.
template <class T>
struct OnGpu {
  DeviceArray<T> value, gradient, first, second;
  DeviceArray<bfloat16> half_gradient, copy;
  bool is_half, has_copy;

  OnGpu(const DeviceContext& gpu, const Parameter<T>& from, std::size_t offset)
      : value(gpu, from.value, offset),
        gradient(gpu, from.gradient, offset),
        first(gpu, from.first, offset),
        second(gpu, from.second, offset),
        half_gradient(gpu, from.half_gradient, offset),
        copy(gpu, from.copy, offset),
        is_half(from.is_half),
        has_copy(from.has_copy) {}
};

/// Sizes around the ends of packs, blocks and pieces, and more parameters than one launch takes. One is zero.
template <class T>
std::vector<Parameter<T>> make_parameters() {
  std::vector<Parameter<T>> parameters;
  std::uint32_t seed = 1;
  const auto add = [&](std::int64_t size) {
    parameters.emplace_back(size, seed);
    seed += 7;
  };
  for (const std::int64_t size : {0, 1, 31, 33, 255, 257, 1025, 4095, 4096, 4097, 12299}) add(size);
  for (int i = 0; i < 310; ++i) add(1 + i % 12);
  for (T& element : parameters[3].value) element = 0;
  return parameters;
}

/// Returns the slots in three groups with different options.
template <class Group, class Parameters>
std::vector<Group> groups_of(Parameters& parameters) {
  std::vector<Group> groups(3);
  groups[0].options.weight_decay = 0.1;
  groups[1].options.rate = 1;
  groups[1].options.lr_scale = 0.3;
  groups[2].options.adapts = false;
  std::size_t i = 0;
  for (auto& parameter : parameters) add_slot(groups[i++ % 3].slots, parameter);
  return groups;
}

void step(auto& stream, const std::vector<kernels::LarsGroup>& groups, const kernels::StepScalars& scalars) {
  kernels::lars_step(stream, groups, scalars);
}
void step(auto& stream, const std::vector<kernels::LambGroup>& groups, const kernels::StepScalars& scalars) {
  kernels::lamb_step(stream, groups, scalars);
}

template <class T>
class CudaLayerwiseStep : public testing::GpuTest {
 protected:
  /// Compares one step of the two devices. A skipped one changes nothing.
  template <class Group>
  void compare(bool aligned, bool skipped) const {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    std::vector<Parameter<T>> expected = make_parameters<T>();
    const std::vector<Parameter<T>> before = expected;
    std::deque<OnGpu<T>> found;
    for (std::size_t i = 0; i < expected.size(); ++i)
      found.emplace_back(gpu, expected[i], aligned ? 0 : i % 3);

    Array<double> lr({2}, {0.1, 0.075}), grad_scale({1}, {0.375}), steps({1}, {6.0});
    const Array<std::int32_t> skip({1}, {skipped ? 1 : 0});
    const DeviceArray<double> gpu_lr(gpu, lr), gpu_scale(gpu, grad_scale), gpu_steps(gpu, steps);
    const DeviceArray<std::int32_t> gpu_skip(gpu, skip);
    on(gpu.stream(), [&](auto& s) {
      step(s, groups_of<Group>(found),
           {.lr = gpu_lr.view(),
            .grad_scale = gpu_scale.view(),
            .skip = gpu_skip.view(),
            .steps = gpu_steps.view()});
    });
    CpuStream cpu({.threads = 2});
    step(cpu, groups_of<Group>(expected),
         {.lr = lr.view(), .grad_scale = grad_scale.view(), .skip = skip.view(), .steps = steps.view()});

    EXPECT_EQ(steps[0], skipped ? 6 : 7);
    EXPECT_EQ(gpu_steps.values()[0], steps[0]);
    // A dozen of roundings; numbers are at most about 3, where the second moment is not close to 0.
    const double tolerance = 40 * unit_roundoff<T>();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(i);
      const Array<T> value = found[i].value.values();
      for (std::size_t e = 0; e < value.size(); ++e)
        ASSERT_NEAR(value[e], expected[i].value[e], tolerance * std::max(1.0, std::abs(double{value[e]})));
      const Array<T> first = found[i].first.values(), second = found[i].second.values();
      for (std::size_t e = 0; e < first.size(); ++e) {
        ASSERT_NEAR(first[e], expected[i].first[e], tolerance * std::max(1.0, std::abs(double{first[e]})));
        ASSERT_NEAR(second[e], expected[i].second[e], tolerance);
      }
      if (skipped) expect_same_bits(value, before[i].value);
      if (skipped || !found[i].has_copy) continue;
      const Array<bfloat16> copy = found[i].copy.values();
      for (std::size_t e = 0; e < value.size(); ++e)
        ASSERT_EQ(copy[e].bits, bfloat16(static_cast<float>(value[e])).bits);
    }
  }
};

using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaLayerwiseStep, Types);

TYPED_TEST(CudaLayerwiseStep, LarsMatchesTheCpu) {
  for (const bool aligned : {true, false}) this->template compare<kernels::LarsGroup>(aligned, false);
}

TYPED_TEST(CudaLayerwiseStep, LambMatchesTheCpu) {
  for (const bool aligned : {true, false}) this->template compare<kernels::LambGroup>(aligned, false);
}

TYPED_TEST(CudaLayerwiseStep, ASkippedStepChangesNothing) {
  this->template compare<kernels::LarsGroup>(true, true);
  this->template compare<kernels::LambGroup>(true, true);
}

}  // namespace
}  // namespace convoy
