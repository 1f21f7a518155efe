// Tests of the rules of --freeze without epochs and of --lr-for. Those with epochs are in learning_rates_test.cpp.
#include "convoy/apps/train/tuning/parameter_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "convoy/apps/train/tuning/initial_parameters.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/error.h"
#include "convoy/models/models.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Groups = std::vector<optim::ParameterGroup>;

Groups groups_of(const models::Model& model) { return optim::decay_groups(model.parameters(), 0.1); }

/// Returns lr_scale by the name of the parameter.
std::map<std::string, double> scales_of(const Groups& groups) {
  std::map<std::string, double> scales;
  for (const optim::ParameterGroup& group : groups)
    for (const nn::NamedParameter& parameter : group.parameters) scales[parameter.name] = group.lr_scale;
  return scales;
}

TEST(Head, IsTheOnlyLayerWhoseShapesDependOnTheClasses) {
  for (const char* name : {"lenet", "resnet20", "speedrun-small"}) {
    const models::Model model = models::make(name, {.classes = 10});
    const auto parameters = model.parameters();
    const auto others = models::make(name, {.classes = 7}).parameters();
    ASSERT_EQ(parameters.size(), others.size());
    const std::string head = head_of(model) + ".";
    for (std::size_t i = 0; i < parameters.size(); ++i)
      EXPECT_EQ(parameters[i].variable.shape() != others[i].variable.shape(),
                parameters[i].name.starts_with(head))
          << name << ": " << parameters[i].name;
  }
}

TEST(FreezeRules, WithoutEpochsRemoveParametersFromTheOptimizer) {
  const models::Model model = models::resnet20();
  const std::vector<FreezeRule> rules = parse_freeze_rules("conv1,bn1,layer1=2,layer2.0");
  const Groups groups = apply_freeze_rules(groups_of(model), rules);
  std::map<std::string, int> rates;
  for (const optim::ParameterGroup& group : groups)
    for (const nn::NamedParameter& parameter : group.parameters) rates[parameter.name] = group.rate;
  for (const nn::NamedParameter& parameter : model.parameters()) {
    const std::string& name = parameter.name;
    const bool is_frozen =
        name.starts_with("conv1.") || name.starts_with("bn1.") || name.starts_with("layer2.0.");
    ASSERT_EQ(rates.contains(name), !is_frozen) << name;
    if (is_frozen) continue;
    EXPECT_EQ(rates[name], name.starts_with("layer1.") ? 1 : 0) << name;
  }
}

TEST(FreezeRules, FreezeStatisticsOfBatchNormsThatAreFrozenAsAWhole) {
  const models::Model model = models::resnet20();
  freeze_parameters(model, parse_freeze_rules("bn1,layer1=2,layer2.0,layer2.1.bn1.weight"));
  std::size_t norms = 0;
  for (nn::Module* const module : model.root().modules())
    if (const auto* norm = dynamic_cast<const nn::BatchNorm2d*>(module)) {
      const bool is_frozen = norm->path() == "bn1" || norm->path().starts_with("layer2.0.");
      EXPECT_EQ(norm->is_frozen(), is_frozen) << norm->path();
      ++norms;
    }
  EXPECT_EQ(norms, 21u);
  for (const nn::NamedParameter& parameter : model.parameters()) {
    const bool is_frozen = parameter.name.starts_with("bn1.") || parameter.name.starts_with("layer2.0.") ||
                           parameter.name == "layer2.1.bn1.weight";
    EXPECT_EQ(parameter.variable.requires_grad(), !is_frozen) << parameter.name;
  }
}

TEST(FreezeRules, RefuseUnknownPrefixesAndToFreezeEverything) {
  const Groups groups = groups_of(models::lenet());
  EXPECT_THAT(message_of<UsageError>([&] { apply_freeze_rules(groups, parse_freeze_rules("conv")); }),
              AllOf(StartsWith("--freeze conv: "), HasSubstr("such as conv1, conv2, fc1, fc2, fc3")));
  EXPECT_THAT(message_of<UsageError>(
                  [&] { apply_freeze_rules(groups, parse_freeze_rules("conv1,conv2,fc1,fc2,fc3")); }),
              HasSubstr("all parameters are frozen"));
}

TEST(FreezeRules, ReadLists) {
  EXPECT_TRUE(parse_freeze_rules("none").empty());
  const std::vector<FreezeRule> rules = parse_freeze_rules("whiten=3,layers.1=0.5,head");
  ASSERT_EQ(rules.size(), 3U);
  EXPECT_EQ(rules[0].prefix, "whiten");
  EXPECT_EQ(rules[0].epochs, 3);
  EXPECT_EQ(rules[1].prefix, "layers.1");
  EXPECT_EQ(rules[1].epochs, 0.5);
  EXPECT_EQ(rules[2].prefix, "head");
  EXPECT_EQ(rules[2].epochs, std::nullopt);
}

TEST(RateRules, ReadLists) {
  EXPECT_TRUE(parse_rate_rules("none").empty());
  const std::vector<RateRule> rules = parse_rate_rules("head=10x,layer1=0.001");
  ASSERT_EQ(rules.size(), 2u);
  EXPECT_EQ(rules[0].prefix, "head");
  EXPECT_EQ(rules[0].value, 10);
  EXPECT_TRUE(rules[0].is_factor);
  EXPECT_EQ(rules[1].value, 0.001);
  EXPECT_FALSE(rules[1].is_factor);
}

TEST(RateRules, RefuseOtherTexts) {
  for (const char* text : {"", "head", "head=", "=1", "head=x", "head=-1", "head=1xx", "head=1,", "head=nan"})
    EXPECT_THAT(message_of<UsageError>([&] { parse_rate_rules(text); }),
                AllOf(StartsWith("--lr-for: found"), HasSubstr("expected PREFIX=FACTORx")))
        << text;
}

TEST(RateRules, SetTheScaleOfTheFirstRuleThatMatches) {
  const models::Model model = models::resnet20();
  const Groups groups = groups_of(model);
  const std::vector<RateRule> rules =
      resolve_rate_rules(parse_rate_rules("head=10x,layer1.0=0x,layer1=0.001"), model, groups);
  for (const auto& [name, scale] : scales_of(apply_rate_rules(groups, rules, 0.5))) {
    const double expected = name.starts_with("fc.")         ? 10
                            : name.starts_with("layer1.0.") ? 0
                            : name.starts_with("layer1.")   ? 0.002
                                                            : 1;
    EXPECT_EQ(scale, expected) << name;
  }
}

TEST(BiasRate, IsThatOfParametersWithOneAxis) {
  const models::Model model = models::resnet20();
  const std::vector<FreezeRule> freeze = parse_freeze_rules("conv1=1,bn1=1");
  Groups groups = apply_bias_rate(
      apply_freeze_rules(optim::decay_groups(model.parameters(), 0.1, /*decay_all=*/true), freeze), 4);
  const auto is_bias = [](const nn::NamedParameter& each) { return each.variable.shape().rank() == 1; };
  std::size_t parameters = 0;
  for (const optim::ParameterGroup& group : groups)
    for (const nn::NamedParameter& parameter : group.parameters) {
      EXPECT_EQ(group.lr_scale, is_bias(parameter) ? 4 : 1) << parameter.name;
      EXPECT_EQ(group.weight_decay, is_bias(parameter) ? 0.025 : 0.1) << parameter.name;
      const bool has_own_rate = parameter.name.starts_with("bn1.") || parameter.name.starts_with("conv1.");
      EXPECT_EQ(group.rate > 0, has_own_rate) << parameter.name;
      ++parameters;
    }
  EXPECT_EQ(parameters, model.parameters().size());
  // A factor of --lr-for is one of the rate of the biases.
  groups = apply_rate_rules(groups, parse_rate_rules("fc=3x"), 1);
  EXPECT_EQ(scales_of(groups).at("fc.bias"), 12);
  EXPECT_EQ(scales_of(groups).at("fc.weight"), 3);
}

TEST(RateRules, RefusePrefixesWithoutParameters) {
  const models::Model model = models::lenet();
  const auto message = [&](const char* text) {
    return message_of<UsageError>(
        [&] { resolve_rate_rules(parse_rate_rules(text), model, groups_of(model)); });
  };
  EXPECT_THAT(message("fc=2x"), AllOf(StartsWith("--lr-for fc=2x: no parameter"), HasSubstr("fc3")));
  EXPECT_THAT(message("fc3=2x,head=3x"), StartsWith("--lr-for head=3x: no parameter"));
}

}  // namespace
}  // namespace convoy::testing
