// Tests of the optimizer steps on the CPU, compared with PyTorch.
#include "convoy/kernels/optimizer_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <type_traits>
#include <vector>

#include "convoy/kernels/base/convert.h"
#include "tests/kernels/array.h"
#include "tests/kernels/half_reference.h"

namespace convoy {
namespace {

using testing::Array;

// Three steps from these parameters with these gradients, computed by torch.optim of PyTorch 2.15 in double.
const Array<double> kStart({3}, {0.5, -1.25, 2});
const Array<double> kGradients[] = {Array<double>({3}, {0.25, -0.5, 1}),
                                    Array<double>({3}, {-0.75, 0.125, 0.5}),
                                    Array<double>({3}, {0, 0.375, -2})};

/// The scalars of a step, and the views that the kernels take.
struct Step {
  Array<double> lr, grad_scale, steps;
  Array<std::int32_t> skip;

  explicit Step(double rate, double steps_before = 0)
      : lr({1}, {rate}), grad_scale({1}, {1.0}), steps({1}, {steps_before}), skip({1}, {0}) {}
  kernels::StepScalars scalars() {
    return {.lr = lr.view(), .grad_scale = {}, .skip = {}, .steps = steps.view()};
  }
  kernels::StepScalars all_scalars() {
    return {.lr = lr.view(), .grad_scale = grad_scale.view(), .skip = skip.view(), .steps = steps.view()};
  }
};

template <class T>
class Optimizer : public ::testing::Test {
 protected:
  static constexpr double kTolerance =
      16 * std::numeric_limits<T>::epsilon();  // three steps of numbers up to 2
  CpuStream stream{{.threads = 1}};

  void expect_sgd(double lr, const kernels::SgdOptions& options, const Array<double>& expected) {
    Array<T> p = kStart.to<T>(), m({3});
    Step step(lr);
    for (const Array<double>& gradient : kGradients) {
      const Array<T> g = gradient.to<T>();
      const kernels::SgdSlot slot{p.view(), g.view(), options.momentum > 0 ? m.view() : View{}};
      kernels::sgd_step(stream, {{{slot}, options}}, step.scalars());
    }
    testing::expect_near(p, expected, kTolerance);
  }

  void expect_adam(double lr, const kernels::AdamOptions& options, const Array<double>& expected) {
    Array<T> p = kStart.to<T>(), m({3}), v({3});
    Step step(lr);
    for (const Array<double>& gradient : kGradients) {
      const Array<T> g = gradient.to<T>();
      const kernels::AdamSlot slot{p.view(), g.view(), m.view(), v.view()};
      kernels::adam_step(stream, {{{slot}, options}}, step.scalars());
    }
    EXPECT_EQ(step.steps[0], 3);
    testing::expect_near(p, expected, kTolerance);
  }
};

using OptimizerTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Optimizer, OptimizerTypes);

TYPED_TEST(Optimizer, SgdMatchesPyTorch) {
  this->expect_sgd(0.1, {}, Array<double>({3}, {0.5499999999999999, -1.25, 2.05}));
  this->expect_sgd(0.1, {.weight_decay = 0.01},
                   Array<double>({3}, {0.5484764744999999, -1.24634119875, 2.044255898}));
  this->expect_sgd(0.1, {.momentum = 0.9, .weight_decay = 0.01},
                   Array<double>({3}, {0.5719673745, -1.16892094875, 1.8232194979999998}));
  this->expect_sgd(0.1, {.momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
                   Array<double>({3}, {0.6132439790955, -1.17360055847625, 1.885739416382}));
}

TYPED_TEST(Optimizer, AdamMatchesPyTorch) {
  const kernels::AdamOptions options{.beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6};
  this->expect_adam(0.05, options,
                    Array<double>({3}, {0.4937744507215712, -1.180621663190834, 1.9136189196691245}));
  kernels::AdamOptions decayed = options;
  decayed.weight_decay = 0.1;
  this->expect_adam(0.05, decayed,
                    Array<double>({3}, {0.48544118618673676, -1.1551774748382713, 1.9052741296533917}));
  decayed.decoupled = true;
  this->expect_adam(0.05, decayed,
                    Array<double>({3}, {0.486687311908926, -1.1625816077668716, 1.8845007808751901}));
}

/// Parameters of many sizes, some of them empty.
template <class T>
struct Model {
  std::vector<Array<T>> parameters, gradients, first, second;

  Model() {
    std::uint32_t seed = 1;
    for (const std::int64_t n : {33, 0, 1, 100003, 31, 32, 0, 257, 20000}) {
      parameters.push_back(Array<T>::random({n}, seed++, 1));
      gradients.push_back(Array<T>::random({n}, seed++));
      first.push_back(Array<T>::random({n}, seed++, 3));
      second.push_back(Array<T>::random({n}, seed++));
      for (T& element : second.back()) element = std::abs(element);
    }
  }
  std::vector<kernels::SgdSlot> sgd_slots() {
    std::vector<kernels::SgdSlot> slots;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      slots.push_back({parameters[i].view(), gradients[i].view(), first[i].view()});
    return slots;
  }
  std::vector<kernels::AdamSlot> adam_slots() {
    std::vector<kernels::AdamSlot> slots;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      slots.push_back({parameters[i].view(), gradients[i].view(), first[i].view(), second[i].view()});
    return slots;
  }
};

template <class T>
void expect_same_model(const Model<T>& a, const Model<T>& b) {
  for (std::size_t i = 0; i < a.parameters.size(); ++i) {
    SCOPED_TRACE("tensor " + std::to_string(i));
    testing::expect_same_bits(a.parameters[i], b.parameters[i]);
    testing::expect_same_bits(a.first[i], b.first[i]);
    testing::expect_same_bits(a.second[i], b.second[i]);
  }
}

TYPED_TEST(Optimizer, StepOfManyTensorsMatchesSingleStepsForAnyThreads) {
  CpuStream three({.threads = 3});
  Model<TypeParam> fused, apart;
  const kernels::SgdOptions sgd{.momentum = 0.9, .weight_decay = 5e-4, .nesterov = true};
  const kernels::AdamOptions adam{.weight_decay = 0.01, .decoupled = true};
  kernels::sgd_step(three, {{fused.sgd_slots(), sgd}}, Step(0.1, 7).scalars());
  kernels::adam_step(three, {{fused.adam_slots(), adam}}, Step(0.1, 7).scalars());
  for (const kernels::SgdSlot& slot : apart.sgd_slots())
    kernels::sgd_step(this->stream, {{{slot}, sgd}}, Step(0.1, 7).scalars());
  for (const kernels::AdamSlot& slot : apart.adam_slots())
    kernels::adam_step(this->stream, {{{slot}, adam}}, Step(0.1, 7).scalars());
  expect_same_model(fused, apart);
  EXPECT_NE(fused.parameters[3][100002], Model<TypeParam>().parameters[3][100002])
      << "the last element was skipped";
}

TYPED_TEST(Optimizer, GroupsHaveTheirOwnOptions) {
  CpuStream three({.threads = 3});
  Model<TypeParam> together, apart;
  const auto groups = [](auto all, const auto& first, const auto& second) {
    using Group = std::conditional_t<std::is_same_v<decltype(all), std::vector<kernels::SgdSlot>>,
                                     kernels::SgdGroup, kernels::AdamGroup>;
    const auto middle = all.begin() + 4;
    return std::vector<Group>{{{all.begin(), middle}, first}, {{}, first}, {{middle, all.end()}, second}};
  };
  const auto sgd = [&](Model<TypeParam>& model) {
    return groups(model.sgd_slots(), kernels::SgdOptions{.momentum = 0.9, .weight_decay = 0.1},
                  kernels::SgdOptions{.lr_scale = 3, .momentum = 0.5, .nesterov = true});
  };
  const auto adam = [&](Model<TypeParam>& model) {
    return groups(model.adam_slots(), kernels::AdamOptions{.weight_decay = 0.1},
                  kernels::AdamOptions{.lr_scale = 3, .beta1 = 0.5, .decoupled = true});
  };
  Step sgd_step(0.1, 4), adam_step(0.1, 4);
  kernels::sgd_step(three, sgd(together), sgd_step.scalars());
  kernels::adam_step(three, adam(together), adam_step.scalars());
  EXPECT_EQ(sgd_step.steps[0], 5) << "all groups make one step";
  EXPECT_EQ(adam_step.steps[0], 5);
  for (const kernels::SgdGroup& group : sgd(apart))
    kernels::sgd_step(this->stream, {group}, Step(0.1, 4).scalars());
  for (const kernels::AdamGroup& group : adam(apart))
    kernels::adam_step(this->stream, {group}, Step(0.1, 4).scalars());
  expect_same_model(together, apart);
}

/// Steps parameters whose gradients are stored as Half, and compares with the same gradients stored as T.
template <class T, class Half>
void expect_step_reads(CpuStream& stream) {
  Model<T> half, full;
  std::vector<Array<Half>> gradients;
  for (Array<T>& gradient : full.gradients) {
    Array<Half>& stored = gradients.emplace_back(gradient.shape());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      stored[i] = converted<Half>(gradient[i]);
      gradient[i] = static_cast<T>(static_cast<float>(stored[i]));
    }
  }
  const auto with_half = [&](auto slots) {
    for (std::size_t i = 0; i < slots.size(); i += 2) slots[i].gradient = gradients[i].view();
    return slots;
  };
  for (std::size_t i = 1; i < full.gradients.size(); i += 2) half.gradients[i] = full.gradients[i];
  const kernels::SgdOptions sgd{.momentum = 0.9, .weight_decay = 0.1};
  kernels::sgd_step(stream, {{with_half(half.sgd_slots()), sgd}}, Step(0.1).scalars());
  kernels::sgd_step(stream, {{full.sgd_slots(), sgd}}, Step(0.1).scalars());
  kernels::adam_step(stream, {{with_half(half.adam_slots()), {}}}, Step(0.1).scalars());
  kernels::adam_step(stream, {{full.adam_slots(), {}}}, Step(0.1).scalars());
  expect_same_model(half, full);
}

TYPED_TEST(Optimizer, ReadsHalfPrecisionGradients) {
  CpuStream three({.threads = 3});
  expect_step_reads<TypeParam, float16>(three);
  expect_step_reads<TypeParam, bfloat16>(three);
}

TYPED_TEST(Optimizer, ScalesGradientBeforeStep) {
  CpuStream three({.threads = 3});
  Step whole(0.1), half(0.1);
  half.grad_scale[0] = 0.5;
  Model<TypeParam> scaled, halved;
  for (Array<TypeParam>& gradient : halved.gradients)
    for (TypeParam& element : gradient) element /= 2;
  const kernels::SgdOptions sgd{.momentum = 0.9, .weight_decay = 0.1};
  kernels::sgd_step(three, {{scaled.sgd_slots(), sgd}}, half.all_scalars());
  kernels::sgd_step(three, {{halved.sgd_slots(), sgd}}, whole.scalars());
  kernels::adam_step(three, {{scaled.adam_slots(), {.weight_decay = 0.1}}}, half.all_scalars());
  kernels::adam_step(three, {{halved.adam_slots(), {.weight_decay = 0.1}}}, whole.all_scalars());
  expect_same_model(scaled, halved);
}

TYPED_TEST(Optimizer, ScalesLearningRateOfGroup) {
  Model<TypeParam> scaled, twice;
  kernels::sgd_step(this->stream, {{scaled.sgd_slots(), {.lr_scale = 2}}}, Step(0.1).scalars());
  kernels::sgd_step(this->stream, {{twice.sgd_slots(), {}}}, Step(0.2).scalars());
  kernels::adam_step(this->stream, {{scaled.adam_slots(), {.lr_scale = 2, .weight_decay = 0.1}}},
                     Step(0.1).scalars());
  kernels::adam_step(this->stream, {{twice.adam_slots(), {.weight_decay = 0.1}}}, Step(0.2).scalars());
  expect_same_model(scaled, twice);
}

TYPED_TEST(Optimizer, SkippedStepChangesNothing) {
  Model<TypeParam> model;
  std::vector<Array<bfloat16>> copies;
  auto sgd_slots = model.sgd_slots();
  for (kernels::SgdSlot& slot : sgd_slots)
    slot.low_precision_copy = copies.emplace_back(slot.parameter.shape, bfloat16(9.0f)).view();
  Step step(0.1);
  step.grad_scale[0] = std::nan("");  // as after an overflow
  step.skip[0] = 3;
  kernels::sgd_step(this->stream, {{sgd_slots, {.momentum = 0.9, .weight_decay = 0.1}}}, step.all_scalars());
  kernels::adam_step(this->stream, {{model.adam_slots(), {.weight_decay = 0.1}}}, step.all_scalars());
  EXPECT_EQ(step.steps[0], 0) << "a skipped step does not count";
  expect_same_model(model, Model<TypeParam>());
  for (const Array<bfloat16>& copy : copies)
    for (const bfloat16 element : copy) ASSERT_EQ(static_cast<float>(element), 9.0f);
}

template <class Half>
void expect_rounded_copy(const Array<Half>& copy, const auto& parameter) {
  for (std::size_t e = 0; e < copy.size(); ++e)
    ASSERT_EQ(copy[e].bits, testing::nearest_half<Half>(static_cast<double>(parameter[e])))
        << "element " << e;
}

TYPED_TEST(Optimizer, WritesLowPrecisionCopyWithoutChangingResults) {
  CpuStream three({.threads = 3});
  Model<TypeParam> with_copies, without;
  std::vector<Array<float16>> f16;
  std::vector<Array<bfloat16>> bf16;
  for (const Array<TypeParam>& parameter : without.parameters) {
    f16.emplace_back(parameter.shape(), float16(9.0f), 1);
    bf16.emplace_back(parameter.shape(), bfloat16(9.0f), 1);
  }
  Step step(0.1);
  const kernels::SgdOptions sgd{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
  auto sgd_slots = with_copies.sgd_slots();
  for (std::size_t i = 0; i < sgd_slots.size(); ++i) sgd_slots[i].low_precision_copy = f16[i].view();
  kernels::sgd_step(three, {{sgd_slots, sgd}}, step.scalars());
  kernels::sgd_step(three, {{without.sgd_slots(), sgd}}, step.scalars());
  expect_same_model(with_copies, without);
  for (std::size_t i = 0; i < f16.size(); ++i) expect_rounded_copy(f16[i], without.parameters[i]);

  auto adam_slots = with_copies.adam_slots();
  for (std::size_t i = 0; i < adam_slots.size(); ++i)
    if (i % 2 == 1) adam_slots[i].low_precision_copy = bf16[i].view();  // every second parameter has a copy
  kernels::adam_step(three, {{adam_slots, {}}}, Step(0.1).scalars());
  kernels::adam_step(three, {{without.adam_slots(), {}}}, Step(0.1).scalars());
  expect_same_model(with_copies, without);
  for (std::size_t i = 1; i < bf16.size(); i += 2) expect_rounded_copy(bf16[i], without.parameters[i]);
}

TYPED_TEST(Optimizer, CountsStepsWithoutParameters) {
  Step step(0.1, 41);
  kernels::sgd_step(this->stream, {}, step.all_scalars());
  EXPECT_EQ(step.steps[0], 42);
  kernels::adam_step(this->stream, {{}}, step.all_scalars());
  EXPECT_EQ(step.steps[0], 43);
}

TEST(ClipCoefficient, ScalesDownOnlyAboveMaxNorm) {
  CpuStream stream({.threads = 1});
  const auto coefficient = [&](double norm, double max_norm) {
    const Array<double> from({1}, {norm});
    Array<double> to({1});
    kernels::clip_coefficient(stream, from.view(), max_norm, ConstView(), to.view());
    return to[0];
  };
  EXPECT_EQ(coefficient(0.5, 1), 1);
  EXPECT_EQ(coefficient(0, 1), 1);
  EXPECT_DOUBLE_EQ(coefficient(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(coefficient(std::numeric_limits<double>::infinity(), 1), 0);
  EXPECT_TRUE(std::isnan(coefficient(std::numeric_limits<double>::quiet_NaN(), 1)));
}

template <class T>
class ScaledClipCoefficient : public ::testing::Test {};
TYPED_TEST_SUITE(ScaledClipCoefficient, OptimizerTypes);

TYPED_TEST(ScaledClipCoefficient, RemovesLossScale) {
  CpuStream stream({.threads = 1});
  const Array<TypeParam> scale({1}, {TypeParam{8}});
  const auto coefficient = [&](const ConstView& norm) {
    Array<double> to({1});
    kernels::clip_coefficient(stream, norm, 1, scale.view(), to.view());
    return to[0];
  };
  EXPECT_EQ(coefficient(ConstView()), 1.0 / 8);
  EXPECT_EQ(coefficient(Array<double>({1}, {4.0}).view()), 1.0 / 8);  // 0.5 for unscaled gradients
  EXPECT_DOUBLE_EQ(coefficient(Array<double>({1}, {32.0}).view()), 1 / (4 + 1e-6) / 8);
}

template <class T>
class LossScale : public ::testing::Test {
 protected:
  CpuStream stream{{.threads = 1}};
  Array<T> scale{{1}, {T{1024}}};
  Array<std::int32_t> good_steps{{1}, {0}}, skipped{{1}, {0}}, failed{{1}, {0}};

  void update(std::int32_t non_finite, const kernels::LossScaleOptions& options) {
    const Array<std::int32_t> count({1}, {non_finite});
    kernels::update_loss_scale(stream, count.view(),
                               {.scale = scale.view(),
                                .good_steps = good_steps.view(),
                                .skipped = skipped.view(),
                                .failed = failed.view()},
                               options);
  }
  void expect(double wanted_scale, int wanted_good, int wanted_skipped, int wanted_failed) {
    EXPECT_EQ(scale[0], wanted_scale);
    EXPECT_EQ(good_steps[0], wanted_good);
    EXPECT_EQ(skipped[0], wanted_skipped);
    EXPECT_EQ(failed[0], wanted_failed);
  }
};

using LossScaleTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LossScale, LossScaleTypes);

TYPED_TEST(LossScale, GrowsAfterConsecutiveGoodSteps) {
  const kernels::LossScaleOptions options{.growth = 4, .interval = 3, .maximum = 8192};
  this->update(0, options);
  this->update(0, options);
  this->expect(1024, 2, 0, 0);
  this->update(0, options);
  this->expect(4096, 0, 0, 0);
  for (int i = 0; i < 3; ++i) this->update(0, options);
  this->expect(8192, 0, 0, 0);  // not above the maximum
}

TYPED_TEST(LossScale, BacksOffAtOverflowAndRestartsCount) {
  const kernels::LossScaleOptions options{.backoff = 0.25, .interval = 3, .minimum = 1};
  this->update(0, options);
  this->update(0, options);
  this->update(7, options);
  this->expect(256, 0, 1, 0);
  this->update(0, options);
  this->update(0, options);
  this->expect(256, 2, 1, 0);  // the two before the overflow do not count
}

TYPED_TEST(LossScale, FailsIfMinimumScaleOverflows) {
  const kernels::LossScaleOptions options{.interval = 1, .minimum = 600};
  this->update(1, options);
  this->expect(600, 0, 1, 0);  // halved, but not below the minimum, which may still work
  this->update(1, options);
  this->expect(600, 0, 2, 1);
  this->update(0, options);
  this->expect(1200, 0, 2, 1);  // the failure flag stays set
}

TYPED_TEST(LossScale, FixedScaleFailsAtFirstOverflow) {
  const kernels::LossScaleOptions options{
      .growth = 1, .backoff = 1, .interval = 1, .minimum = 1024, .maximum = 1024};
  this->update(0, options);
  this->expect(1024, 0, 0, 0);
  this->update(1, options);
  this->expect(1024, 0, 1, 1);
}

}  // namespace
}  // namespace convoy
