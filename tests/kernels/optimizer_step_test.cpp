#include "kernels/optimizer_step.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/array.h"
#include "tests/kernels/half_reference.h"

namespace convoy {
namespace {

using testing::Array;

// Three steps from these parameters with these gradients, by PyTorch 2.15's torch.optim in double.
const Array<double> kStart({3}, {0.5, -1.25, 2});
const Array<double> kGradients[] = {Array<double>({3}, {0.25, -0.5, 1}),
                                    Array<double>({3}, {-0.75, 0.125, 0.5}),
                                    Array<double>({3}, {0, 0.375, -2})};

template <class T>
class Optimizer : public ::testing::Test {
 protected:
  static constexpr double kTolerance =
      16 * std::numeric_limits<T>::epsilon();  // three steps of numbers up to 2
  CpuStream stream{{.threads = 1}};

  void expect_sgd(const SgdOptions& options, const Array<double>& expected) {
    Array<T> p = kStart.to<T>(), m({3});
    for (const Array<double>& gradient : kGradients) {
      const Array<T> g = gradient.to<T>();
      const SgdSlot slot{p.view(), g.view(), options.momentum > 0 ? m.view() : View{}};
      sgd_step(stream, {&slot, 1}, ConstView(), options);
    }
    testing::expect_near(p, expected, kTolerance);
  }

  void expect_adam(AdamOptions options, const Array<double>& expected) {
    Array<T> p = kStart.to<T>(), m({3}), v({3});
    for (const Array<double>& gradient : kGradients) {
      const Array<T> g = gradient.to<T>();
      const AdamSlot slot{p.view(), g.view(), m.view(), v.view()};
      adam_step(stream, {&slot, 1}, ConstView(), options);
      ++options.step;
    }
    testing::expect_near(p, expected, kTolerance);
  }
};

using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Optimizer, Types);

TYPED_TEST(Optimizer, SgdIsPyTorchs) {
  this->expect_sgd({.lr = 0.1}, Array<double>({3}, {0.5499999999999999, -1.25, 2.05}));
  this->expect_sgd({.lr = 0.1, .weight_decay = 0.01},
                   Array<double>({3}, {0.5484764744999999, -1.24634119875, 2.044255898}));
  this->expect_sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01},
                   Array<double>({3}, {0.5719673745, -1.16892094875, 1.8232194979999998}));
  this->expect_sgd({.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
                   Array<double>({3}, {0.6132439790955, -1.17360055847625, 1.885739416382}));
}

TYPED_TEST(Optimizer, AdamIsPyTorchs) {
  const AdamOptions options{.lr = 0.05, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-6};
  this->expect_adam(options,
                    Array<double>({3}, {0.4937744507215712, -1.180621663190834, 1.9136189196691245}));
  AdamOptions decayed = options;
  decayed.weight_decay = 0.1;
  this->expect_adam(decayed,
                    Array<double>({3}, {0.48544118618673676, -1.1551774748382713, 1.9052741296533917}));
  decayed.decoupled = true;
  this->expect_adam(decayed,
                    Array<double>({3}, {0.486687311908926, -1.1625816077668716, 1.8845007808751901}));
}

/// A model of tensors of many sizes, some empty.
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
  std::vector<SgdSlot> sgd_slots() {
    std::vector<SgdSlot> slots;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      slots.push_back({parameters[i].view(), gradients[i].view(), first[i].view()});
    return slots;
  }
  std::vector<AdamSlot> adam_slots() {
    std::vector<AdamSlot> slots;
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

TYPED_TEST(Optimizer, AllTensorsAtOnceAreEachByItselfOnAnyThreads) {
  CpuStream three({.threads = 3});
  Model<TypeParam> fused, apart;
  const SgdOptions sgd{.lr = 0.1, .momentum = 0.9, .weight_decay = 5e-4, .nesterov = true};
  const AdamOptions adam{.weight_decay = 0.01, .decoupled = true, .step = 7};
  sgd_step(three, fused.sgd_slots(), ConstView(), sgd);
  adam_step(three, fused.adam_slots(), ConstView(), adam);
  for (const SgdSlot& slot : apart.sgd_slots()) sgd_step(this->stream, {&slot, 1}, ConstView(), sgd);
  for (const AdamSlot& slot : apart.adam_slots()) adam_step(this->stream, {&slot, 1}, ConstView(), adam);
  expect_same_model(fused, apart);
  EXPECT_NE(fused.parameters[3][100002], Model<TypeParam>().parameters[3][100002])
      << "the last element was left out";
}

TYPED_TEST(Optimizer, ScalesTheGradientFirst) {
  CpuStream three({.threads = 3});
  const Array<double> half({1}, {0.5});
  Model<TypeParam> scaled, halved;
  for (Array<TypeParam>& gradient : halved.gradients)
    for (TypeParam& element : gradient) element /= 2;
  const SgdOptions sgd{.momentum = 0.9, .weight_decay = 0.1};
  sgd_step(three, scaled.sgd_slots(), half.view(), sgd);
  sgd_step(three, halved.sgd_slots(), ConstView(), sgd);
  adam_step(three, scaled.adam_slots(), half.view(), {.weight_decay = 0.1});
  adam_step(three, halved.adam_slots(), ConstView(), {.weight_decay = 0.1});
  expect_same_model(scaled, halved);
}

template <class Half>
void expect_rounded_copy(const Array<Half>& copy, const auto& parameter) {
  for (std::size_t e = 0; e < copy.size(); ++e)
    ASSERT_EQ(copy[e].bits, testing::nearest_half<Half>(static_cast<double>(parameter[e])))
        << "element " << e;
}

TYPED_TEST(Optimizer, RoundsAHalfCopyWhichChangesNothingElse) {
  CpuStream three({.threads = 3});
  Model<TypeParam> with_copies, without;
  std::vector<Array<float16>> f16;
  std::vector<Array<bfloat16>> bf16;
  for (const Array<TypeParam>& parameter : without.parameters) {
    f16.emplace_back(parameter.shape(), float16(9.0f), 1);
    bf16.emplace_back(parameter.shape(), bfloat16(9.0f), 1);
  }
  const SgdOptions sgd{.momentum = 0.9, .weight_decay = 0.1, .nesterov = true};
  auto sgd_slots = with_copies.sgd_slots();
  for (std::size_t i = 0; i < sgd_slots.size(); ++i) sgd_slots[i].half_copy = f16[i].view();
  sgd_step(three, sgd_slots, ConstView(), sgd);
  sgd_step(three, without.sgd_slots(), ConstView(), sgd);
  expect_same_model(with_copies, without);
  for (std::size_t i = 0; i < f16.size(); ++i) expect_rounded_copy(f16[i], without.parameters[i]);

  auto adam_slots = with_copies.adam_slots();
  for (std::size_t i = 0; i < adam_slots.size(); ++i)
    if (i % 2 == 1) adam_slots[i].half_copy = bf16[i].view();  // some have one, some have none
  adam_step(three, adam_slots, ConstView(), {});
  adam_step(three, without.adam_slots(), ConstView(), {});
  expect_same_model(with_copies, without);
  for (std::size_t i = 1; i < bf16.size(); i += 2) expect_rounded_copy(bf16[i], without.parameters[i]);
}

TYPED_TEST(Optimizer, TakesNoSlots) {
  sgd_step(this->stream, {}, ConstView(), {});
  adam_step(this->stream, {}, ConstView(), {});
}

TEST(ClipCoefficient, ShrinksOnlyWhatIsTooLong) {
  CpuStream stream({.threads = 1});
  const auto coefficient = [&](double norm, double max_norm) {
    const Array<double> from({1}, {norm});
    Array<double> to({1});
    clip_coefficient(stream, from.view(), max_norm, to.view());
    return to[0];
  };
  EXPECT_EQ(coefficient(0.5, 1), 1);
  EXPECT_EQ(coefficient(0, 1), 1);
  EXPECT_DOUBLE_EQ(coefficient(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(coefficient(std::numeric_limits<double>::infinity(), 1), 0);
  EXPECT_TRUE(std::isnan(coefficient(std::numeric_limits<double>::quiet_NaN(), 1)));
}

}  // namespace
}  // namespace convoy
