#include "convoy/engine/optim/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/make_optimizer.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Values = std::vector<double>;

nn::NamedParameter parameter(const std::string& name, const Values& values,
                             nn::ParameterKind kind = nn::ParameterKind::weight) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return {name, Variable(Tensor::from(values, shape, Device::cpu()), true), kind};
}

/// Sets the parameter's gradient by a backward of its inner product with `gradient`.
void give_gradient(const nn::NamedParameter& parameter, const Values& gradient) {
  const Variable factor(Tensor::from(gradient, parameter.variable.shape(), Device::cpu()));
  backward(sum(parameter.variable * factor));
}

Values values_of(const nn::NamedParameter& parameter) {
  return parameter.variable.value().to_vector<double>();
}

TEST(Optimizer, ClipsByTheGlobalNorm) {
  const nn::NamedParameter a = parameter("a", {1, -2}), b = parameter("b", {3});
  optim::Sgd optimizer({a, b}, {});
  give_gradient(a, {3, 0});
  give_gradient(b, {-4});
  optimizer.step(0.1, {.clip_norm = 2.0});
  // torch.nn.utils.clip_grad_norm_([p], 2.0), then SGD
  EXPECT_NEAR(values_of(a)[0], 0.88000002399999522, 1e-15);
  EXPECT_EQ(values_of(a)[1], -2);
  EXPECT_NEAR(values_of(b)[0], 3.1599999680000064, 2e-15);
}

TEST(Optimizer, DoesNotClipBelowTheLimit) {
  const nn::NamedParameter clipped = parameter("p", {1, -2, 3}), plain = parameter("p", {1, -2, 3});
  optim::Sgd one({clipped}, {}), other({plain}, {});
  give_gradient(clipped, {0.3, 0.1, -0.7});
  give_gradient(plain, {0.3, 0.1, -0.7});
  one.step(0.1, {.clip_norm = 1.0});
  other.step(0.1);
  EXPECT_EQ(values_of(clipped), values_of(plain));
}

TEST(Optimizer, SkipsParametersWithoutANewGradient) {
  const nn::NamedParameter a = parameter("a", {1}), b = parameter("b", {2});
  optim::Sgd optimizer({a, b}, {.momentum = 0.5, .weight_decay = 0.1});
  give_gradient(a, {1});
  give_gradient(b, {1});
  optimizer.step(0.1);
  const double before = values_of(b)[0];
  give_gradient(a, {1});
  optimizer.step(0.1);  // b's gradient was consumed: neither momentum nor decay may change b
  EXPECT_EQ(values_of(b)[0], before);
  EXPECT_NE(values_of(a)[0], before);
}

TEST(Optimizer, RejectsAStepWithoutBackward) {
  const nn::NamedParameter p = parameter("p", {1});
  optim::Sgd optimizer({p}, {});
  EXPECT_THROW(optimizer.step(0.1), UsageError);
  give_gradient(p, {1});
  optimizer.step(0.1);
  EXPECT_THROW(optimizer.step(0.1), UsageError);
  EXPECT_EQ(optimizer.steps(), 1);
}

TEST(Optimizer, RejectsDuplicateParameters) {
  const nn::NamedParameter p = parameter("p", {1});
  nn::NamedParameter alias = p;
  alias.name = "q";
  const auto make = [](std::vector<optim::ParameterGroup> groups) {
    optim::Sgd(std::move(groups), optim::SgdSettings{});
  };
  EXPECT_THROW(make({{.parameters = {p}}, {.parameters = {p}}}), UsageError);
  EXPECT_THROW(make({{.parameters = {p}}, {.parameters = {alias}}}), UsageError);
  EXPECT_THROW(make({{.parameters = {p, parameter("p", {2})}}}), UsageError);
  EXPECT_THROW(make({}), UsageError);
}

TEST(Optimizer, RejectsInvalidSettings) {
  const std::vector<nn::NamedParameter> p{parameter("p", {1})};
  EXPECT_THROW(optim::Sgd(p, {.momentum = 1}), UsageError);
  EXPECT_THROW(optim::Sgd(p, {.nesterov = true}), UsageError);
  EXPECT_THROW(optim::Sgd(p, {.weight_decay = -1}), UsageError);
  EXPECT_THROW(optim::Adam(p, {.beta1 = 1}), UsageError);
  EXPECT_THROW(optim::Adam(p, {.epsilon = 0}), UsageError);
  EXPECT_THROW(optim::Sgd(optim::decay_groups(p, 0.1), {.weight_decay = 0.1}),
               UsageError);  // it would have no effect
  optim::Sgd optimizer(p, {});
  give_gradient(p[0], {1});
  EXPECT_THROW(optimizer.step(std::nan("")), UsageError);
  EXPECT_THROW(optimizer.step(0.1, {.clip_norm = 0.0}), UsageError);
}

TEST(Optimizer, GroupsHaveTheirOwnDecayAndRate) {
  const nn::NamedParameter a = parameter("a", {1}), b = parameter("b", {1});
  optim::Sgd optimizer({{.parameters = {a}, .lr_scale = 2, .weight_decay = 0.5}, {.parameters = {b}}}, {});
  give_gradient(a, {1});
  give_gradient(b, {1});
  optimizer.step(0.125);
  EXPECT_EQ(values_of(a)[0], 1 - 0.25 * 1.5);
  EXPECT_EQ(values_of(b)[0], 1 - 0.125);
}

TEST(Optimizer, DecayGroupsExcludeBiasesAndNorms) {
  const std::vector<nn::NamedParameter> all{
      parameter("f", {1}, nn::ParameterKind::filter), parameter("b", {1}, nn::ParameterKind::bias),
      parameter("w", {1}, nn::ParameterKind::weight), parameter("s", {1}, nn::ParameterKind::norm_scale),
      parameter("h", {1}, nn::ParameterKind::norm_shift)};
  const auto names = [](const optim::ParameterGroup& group) {
    std::string joined;
    for (const nn::NamedParameter& one : group.parameters) joined += one.name;
    return joined;
  };
  const std::vector<optim::ParameterGroup> two = optim::decay_groups(all, 0.1);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(names(two[0]), "fw");
  EXPECT_EQ(two[0].weight_decay, 0.1);
  EXPECT_EQ(names(two[1]), "bsh");
  EXPECT_EQ(two[1].weight_decay, 0);
  const std::vector<optim::ParameterGroup> one = optim::decay_groups(all, 0.1, true);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(names(one[0]), "fbwsh");
}

TEST(Optimizer, StateIsCompleteBeforeTheFirstStep) {
  const std::vector<nn::NamedParameter> all{parameter("w", {1, 2}),
                                            parameter("b", {3}, nn::ParameterKind::bias)};
  const auto names = [](const optim::Optimizer& optimizer) {
    std::vector<std::string> found;
    for (const optim::NamedState& state : optimizer.state()) found.push_back(state.name);
    return found;
  };
  EXPECT_TRUE(names(optim::Sgd(all, {})).empty());
  EXPECT_THAT(names(optim::Sgd(all, {.momentum = 0.9})), ElementsAre("momentum/w", "momentum/b"));
  const optim::Adam adam(all, {});
  EXPECT_THAT(names(adam),
              ElementsAre("first_moment/w", "first_moment/b", "second_moment/w", "second_moment/b"));
  EXPECT_THAT(adam.state()[0].tensor.to_vector<double>(), ElementsAre(0, 0));
  EXPECT_EQ(adam.state()[3].kind, nn::ParameterKind::bias);
}

TEST(Optimizer, ReadsTheLearningRateFromDeviceMemory) {
  const nn::NamedParameter one = parameter("p", {1, -2, 3}), other = parameter("p", {1, -2, 3});
  optim::Adam by_number({one}, {}), by_tensor({other}, {});
  const Tensor rate = Tensor::full({1}, 0.1, DType::f64, Device::cpu());
  for (const double lr : {0.1, 0.025}) {
    give_gradient(one, {0.3, 0.1, -0.7});
    give_gradient(other, {0.3, 0.1, -0.7});
    by_number.step(lr);
    rate.copy_from(Tensor::full({1}, lr, DType::f64, Device::cpu()));
    by_tensor.step(rate);
  }
  EXPECT_EQ(values_of(one), values_of(other));
  EXPECT_EQ(by_tensor.steps(), 2);
  give_gradient(other, {1, 1, 1});
  EXPECT_THROW(by_tensor.step(Tensor()), UsageError);
  EXPECT_THROW(by_tensor.step(Tensor::full({1}, 0.1, DType::f32, Device::cpu())), UsageError);
  EXPECT_THROW(by_tensor.step(Tensor::full({2, 1}, 0.1, DType::f64, Device::cpu())), UsageError);
}

TEST(Optimizer, ContinuesFromSetSteps) {
  const nn::NamedParameter p = parameter("p", {1}), q = parameter("p", {1});
  optim::Adam late({p}, {}), early({q}, {});
  late.set_steps(1000);
  EXPECT_EQ(late.steps(), 1000);
  give_gradient(p, {0.5});
  give_gradient(q, {0.5});
  late.step(0.1);
  early.step(0.1);
  EXPECT_EQ(late.steps(), 1001);
  // m = 0.1 g and v = 0.001 g^2. The correction is exact at step 1; at step 1001, v is divided by 1 -
  // 0.999^1001.
  EXPECT_NEAR(values_of(q)[0], 1 - 0.1, 1e-8);
  EXPECT_NEAR(values_of(p)[0], 1 - 0.1 * 0.1 / std::sqrt(0.001 / (1 - std::pow(0.999, 1001))), 1e-6);
}

/// Two optimizers of the parameters a and b: one has both, the other one b alone.
struct WithAndAlone {
  nn::NamedParameter a = parameter("a", {1, 2}), b = parameter("b", {3, -2, 1}),
                     alone = parameter("b", {3, -2, 1});
  std::unique_ptr<optim::Optimizer> both, one;

  explicit WithAndAlone(const char* name)
      : both(testing::make_optimizer(name, {{.parameters = {a, b}, .weight_decay = 0.1}})),
        one(testing::make_optimizer(name, {{.parameters = {alone}, .weight_decay = 0.1}})) {}

  /// Steps, with a gradient of a, and of b if `has_b`, and the optimizer of b alone if it has a gradient.
  void step(int number, bool has_b, optim::LossScaler* scaler = nullptr) const {
    const double lr = 0.1 / number;
    give_gradient(a, {0.5 * number, -1});
    if (has_b) {
      give_gradient(b, {0.25, 1.0 / number, -number * 0.5});
      give_gradient(alone, {0.25, 1.0 / number, -number * 0.5});
      one->step(lr);
    }
    both->step(lr, {.scaler = scaler});
  }
  void expect_equal(int number) const {
    EXPECT_EQ(values_of(b), values_of(alone)) << both->name() << " after step " << number;
  }
};

TEST(Optimizer, CorrectsTheBiasByTheStepsOfEachParameter) {
  for (const char* name : {"adam", "adamw"}) {
    const WithAndAlone training(name);
    for (int number = 1; number <= 6; ++number) {
      training.step(number, number % 3 == 2 || number == 6);
      training.expect_equal(number);
    }
    EXPECT_EQ(training.both->steps(), 6);
    EXPECT_EQ(training.one->steps(), 3);
    EXPECT_EQ(training.both->own_steps(), (optim::StepsByName{{"b", 3}}));
    // An optimizer that has other numbers gets all of those that are set.
    training.both->set_steps(9, {{"a", 4}, {"other", 1}});
    EXPECT_EQ(training.both->own_steps(), (optim::StepsByName{{"a", 4}}));
    training.both->set_steps(2);
    EXPECT_TRUE(training.both->own_steps().empty());
  }
  const WithAndAlone plain("sgd");
  plain.step(1, false);
  EXPECT_TRUE(plain.both->own_steps().empty()) << "a step of SGD does not depend on their number";
}

TEST(Optimizer, SkippedStepsAreNotThoseWithoutAGradient) {
  const WithAndAlone training("adam");
  optim::LossScaler scaler(Device::cpu(), DType::f64, {.initial = 1});
  training.step(1, true);
  give_gradient(training.a, {INFINITY, 0});
  training.both->step(0.1, {.scaler = &scaler});  // is skipped
  EXPECT_TRUE(training.both->own_steps().empty());
  training.step(2, true);
  training.expect_equal(2);
  training.step(3, false);
  EXPECT_EQ(training.both->own_steps(), (optim::StepsByName{{"b", 2}}));
  give_gradient(training.a, {0, 0});
  give_gradient(training.b, {0, INFINITY, 0});
  training.both->step(0.1, {.scaler = &scaler});  // is skipped
  EXPECT_EQ(training.both->own_steps(), (optim::StepsByName{{"b", 2}}));
  training.step(4, true);
  training.expect_equal(4);
}

TEST(Optimizer, ReadsTheTextOfSteps) {
  const optim::StepsByName steps{{"fc.bias", 3}, {"\"\n", 1LL << 40}};
  EXPECT_EQ(optim::parse_steps(optim::to_text(steps)), steps);
  EXPECT_EQ(optim::parse_steps(optim::to_text({})), optim::StepsByName());
  for (const char* text :
       {"", "{", "[1]", "3", R"({"a":1.5})", R"({"a":[1]})", R"({"a":{"b":1}})", R"({"a":"1"})"})
    EXPECT_THROW(optim::parse_steps(text), DataError) << text;
}

TEST(Optimizer, UpdatesLowPrecisionCopies) {
  const Values start{1.003, -2.7};
  const nn::NamedParameter kept = parameter("kept", start), plain = parameter("plain", start);
  kept.variable.set_low_precision_copy(kept.variable.value().to(DType::bf16));
  const Tensor copy = kept.variable.low_precision_copy();
  for (const char* name : {"sgd", "adam"}) {
    const auto optimizer = testing::make_optimizer(name, {{.parameters = {kept, plain}}});
    give_gradient(kept, {0.5, -1});
    give_gradient(plain, {0.5, -1});
    optimizer->step(0.1);
    EXPECT_EQ(values_of(kept), values_of(plain));
    EXPECT_EQ(copy.to(DType::f64).to_vector<double>(),
              kept.variable.value().to(DType::bf16).to(DType::f64).to_vector<double>());
  }
}

TEST(Optimizer, ErrorSaysThatTheModelMoved) {
  const nn::NamedParameter p = parameter("fc.weight", {1});
  optim::Sgd optimizer({p}, {.momentum = 0.9});
  p.variable.set_value(Tensor::full({1}, 1, DType::f32, Device::cpu()));
  backward(sum(p.variable));
  EXPECT_THAT(testing::message_of<UsageError>([&] { optimizer.step(0.1); }),
              HasSubstr("fc.weight is f32 on cpu, its state f64 on cpu"));
}

TEST(Optimizers, HaveNames) {
  for (const char* name : {"sgd", "adam", "adamw"})
    EXPECT_EQ(testing::make_optimizer(name, optim::decay_groups({parameter("p", {1})}, 0.1))->name(), name);
}

TEST(LearningRates, EachGroupUsesItsOwn) {
  const auto moves = [](auto make) {  // of two parameters with the gradients 1 and 1
    const nn::NamedParameter a = parameter("a", {0}), b = parameter("b", {0});
    std::vector<optim::ParameterGroup> groups = {{.parameters = {a}, .rate = 1},
                                                 {.parameters = {b}, .lr_scale = 2}};
    const std::unique_ptr<optim::Optimizer> optimizer = make(groups);
    EXPECT_EQ(optimizer->rates(), 2);
    give_gradient(a, {1});
    give_gradient(b, {1});
    optimizer->step(Tensor::from(Values{0.125, 0.5}, {2}, Device::cpu()));
    return Values{values_of(a)[0], values_of(b)[0]};
  };
  EXPECT_THAT(moves([](auto groups) { return testing::make_optimizer("sgd", groups); }),
              ElementsAre(-0.5, -0.25));
  // The first step of Adam moves a parameter by the rate, up to epsilon = 1e-8.
  EXPECT_THAT(moves([](auto groups) { return testing::make_optimizer("adam", groups); }),
              ElementsAre(::testing::DoubleNear(-0.5, 1e-8), ::testing::DoubleNear(-0.25, 1e-8)));
}

TEST(LearningRates, OneNumberIsTheRateOfAllGroups) {
  const nn::NamedParameter a = parameter("a", {0}), b = parameter("b", {0});
  optim::Sgd optimizer({{.parameters = {a}, .rate = 1}, {.parameters = {b}}}, {});
  give_gradient(a, {1});
  give_gradient(b, {1});
  optimizer.step(0.25);
  EXPECT_THAT(values_of(a), ElementsAre(-0.25));
  EXPECT_THAT(values_of(b), ElementsAre(-0.25));
}

TEST(LearningRates, MustMatchTheGroups) {
  const nn::NamedParameter a = parameter("a", {0});
  optim::Sgd optimizer(std::vector<optim::ParameterGroup>{{.parameters = {a}, .rate = 1}}, {});
  give_gradient(a, {1});
  const Tensor one = Tensor::from(Values{0.5}, {1}, Device::cpu());
  EXPECT_THAT(testing::message_of<UsageError>([&] { optimizer.step(one); }),
              HasSubstr("expected f64 [2] or more on cpu"));
  EXPECT_THROW(optim::Sgd(std::vector<optim::ParameterGroup>{{.parameters = {a}, .rate = -1}}, {}),
               UsageError);
}

}  // namespace
}  // namespace convoy
