// Tests of the rules of --freeze, and of the default flags of the speedrun networks.
#include "convoy/apps/train/options/learning_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "convoy/kernels/base/error.h"
#include "convoy/models/models.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TrainOptions resolved(TrainOptions options) {
  resolve_recipe(options);
  return options;
}

TEST(FreezeRules, RefuseOtherTexts) {
  for (const char* text :
       {"", "=3", "whiten=", "whiten=0", "whiten=-1", "whiten=3x", "whiten=inf", "whiten=3,", "a=1,,b=2"})
    EXPECT_THAT(message_of<UsageError>([&] { parse_freeze_rules(text); }),
                AllOf(StartsWith("--freeze: found"), HasSubstr("expected PREFIX, or PREFIX=EPOCHS")))
        << text;
}

std::vector<optim::ParameterGroup> groups_of_speedrun() {
  return optim::decay_groups(models::speedrun_small().parameters(), 0.1);
}

TEST(FreezeRules, MoveParametersToGroupsWithRatesOfTheirOwn) {
  const std::vector<optim::ParameterGroup> groups =
      apply_freeze_rules(groups_of_speedrun(), parse_freeze_rules("whiten=3,layers.1=2"));
  std::size_t parameters = 0;
  for (const optim::ParameterGroup& group : groups)
    for (const nn::NamedParameter& parameter : group.parameters) {
      const int rate = parameter.name == "whiten.bias" ? 1 : parameter.name.starts_with("layers.1.") ? 2 : 0;
      EXPECT_EQ(group.rate, rate) << parameter.name;
      const bool decays = parameter.name.ends_with("weight");
      EXPECT_EQ(group.weight_decay, decays ? 0.1 : 0) << parameter.name;
      ++parameters;
    }
  EXPECT_EQ(parameters, models::speedrun_small().parameters().size());
}

TEST(FreezeRules, PrefixesEndAtADot) {
  EXPECT_THAT(
      message_of<UsageError>([] { apply_freeze_rules(groups_of_speedrun(), parse_freeze_rules("layer=1")); }),
      AllOf(HasSubstr("--freeze layer=1"), HasSubstr("such as head, layers, whiten")));
  EXPECT_THAT(message_of<UsageError>([] {
                apply_freeze_rules(groups_of_speedrun(), parse_freeze_rules("layers=1,layers.1=2"));
              }),
              HasSubstr("--freeze layers.1=2"))
      << "the first rule has taken all of them";
}

TEST(LearningRates, ARuleEndsItsScheduleEarly) {
  const TrainOptions options =
      resolved({.lr = 0.5, .schedule = LinearSchedule{.warmup = 0}, .freeze = "a=2,b=0.5,c=100"});
  const LearningRates rates(options, /*total_steps=*/40, /*steps_per_epoch=*/4);
  EXPECT_THAT(rates.at(0), ElementsAre(0.5, 0.5, 0.5, 0.5));
  EXPECT_THAT(rates.at(1), ElementsAre(0.5 * 39 / 40, 0.5 * 7 / 8, 0.25, 0.5 * 39 / 40));
  EXPECT_THAT(rates.at(2), ElementsAre(0.5 * 38 / 40, 0.5 * 6 / 8, 0, 0.5 * 38 / 40));
  EXPECT_THAT(rates.at(8), ElementsAre(0.4, 0, 0, 0.4));
  EXPECT_THAT(rates.at(39), ElementsAre(::testing::DoubleNear(0.5 / 40, 1e-15), 0, 0,
                                        ::testing::DoubleNear(0.5 / 40, 1e-15)));
}

// tests/reference/schedules.py has the same settings: 60 steps, 10 of them per epoch.
TEST(LearningRates, AreThoseOfPyTorchsSchedulers) {
  const Reference reference("schedules.safetensors");
  const auto expect = [&](const TrainOptions& options, const std::string& variant = "") {
    const LearningRates rates(resolved(options), 60, 10);
    const std::string name = to_string(*options.schedule) + variant;
    const std::vector<double> expected = reference.at(name).to_vector<double>();
    ASSERT_EQ(expected.size(), 60u);
    for (std::int64_t step = 0; step < 60; ++step)
      EXPECT_NEAR(rates.at(step)[0], expected[static_cast<std::size_t>(step)],
                  1e-14)  // PyTorch's rates are products
          << name << " at step " << step;
  };
  const TrainingLength steps = *TrainingLength::parse("6steps"), epochs = *TrainingLength::parse("0.6epochs");
  expect({.lr = 0.4, .schedule = CosineSchedule{.warmup = steps, .min_lr = 0.01}});
  expect({.lr = 0.4, .schedule = CosineSchedule{.warmup = epochs, .min_lr = 0.01}});
  expect({.lr = 0.4, .schedule = CosineSchedule{.warmup = 0, .min_lr = 0.01, .cycles = 4}}, "/cycles");
  expect({.lr = 0.4, .schedule = CosineSchedule{.warmup = 0, .min_lr = 0.01, .cycles = 2, .growth = 2}},
         "/growth");
  expect({.lr = 0.4, .schedule = LinearSchedule{.warmup = 0, .min_lr = 0.04}});
  expect({.lr = 0.4, .schedule = LinearSchedule{.warmup = 0.3, .min_lr = 0.04}}, "/warmup");
  expect({.lr = 0.4, .schedule = StepSchedule{.warmup = 0, .milestones = "0.25,4.5,99", .gamma = 0.3}});
  expect({.lr = 0.4, .schedule = ExponentialSchedule{.warmup = 0, .gamma = 0.8}});
  const PolynomialSchedule polynomial{.warmup = 0, .power = 0.9};
  expect({.lr = 0.4, .schedule = polynomial});
  expect({.lr = 0.4, .schedule = OneCycleSchedule()});
}

TEST(LearningRates, AreAtMostTheLimitOfAPlateau) {
  const TrainOptions options = resolved(
      {.lr = 0.5, .schedule = PlateauSchedule{.warmup = *TrainingLength::parse("3steps")}, .freeze = "a=1"});
  const LearningRates rates(options, 30, 10);
  EXPECT_THAT(rates.at(0, 0.25), ElementsAre(0.125, 0.125)) << "the warmup is below the limit";
  EXPECT_THAT(rates.at(3, 0.5), ElementsAre(0.5, 0.5));
  EXPECT_THAT(rates.at(12, 0.25), ElementsAre(0.25, 0));
}

TEST(LearningRates, RefuseAWarmupLongerThanTheTraining) {
  const TrainOptions options =
      resolved({.lr = 0.4, .schedule = CosineSchedule{.warmup = *TrainingLength::parse("6epochs")}});
  EXPECT_THAT(message_of<UsageError>([&] { LearningRates(options, 60, 10); }),
              HasSubstr("--warmup 6epochs: found a training of 60 steps"));
  EXPECT_GT(LearningRates(options, 61, 10).at(0)[0], 0);
}

TEST(LearningRates, AFrozenRateIsZeroWithEverySchedule) {
  for (const std::string& schedule : names_of(std::optional<ScheduleOptions>())) {
    TrainOptions options{.lr = 0.5, .freeze = "a=1"};
    resolve_recipe(options);
    options.schedule = default_schedule(options, schedule);
    const LearningRates rates(options, 30, 3);
    EXPECT_GT(rates.at(2)[1], 0) << schedule;
    EXPECT_EQ(rates.at(3)[1], 0) << schedule;
    EXPECT_GT(rates.at(3)[0], 0) << schedule;
  }
}

TEST(LearningRates, ParametersRequireNoGradientOnceTheirRateHasEnded) {
  const TrainOptions options = resolved({.lr = 0.5, .freeze = "whiten=1,layers=2"});
  const LearningRates rates(options, 30, 3);
  const std::vector<optim::ParameterGroup> groups =
      apply_freeze_rules(groups_of_speedrun(), parse_freeze_rules(*options.freeze));
  const auto trained = [&] {
    std::set<int> indices;
    for (const optim::ParameterGroup& group : groups)
      for (const nn::NamedParameter& parameter : group.parameters)
        if (parameter.variable.requires_grad()) indices.insert(group.rate);
    return indices;
  };
  EXPECT_FALSE(rates.freeze_ended(groups, 2));
  EXPECT_THAT(trained(), ElementsAre(0, 1, 2));
  EXPECT_TRUE(rates.freeze_ended(groups, 3));
  EXPECT_THAT(trained(), ElementsAre(0, 2));
  EXPECT_FALSE(rates.freeze_ended(groups, 4));
  EXPECT_TRUE(rates.freeze_ended(groups, 6));
  EXPECT_THAT(trained(), ElementsAre(0));
  EXPECT_TRUE(rates.freeze_ended(groups, 0)) << "a training that continues from an earlier step";
  EXPECT_THAT(trained(), ElementsAre(0, 1, 2));
}

TEST(Recipe, SpeedrunNetworksHaveTheFlagsOfTheRecord) {
  const TrainOptions options = resolved({.model = "speedrun"});
  EXPECT_EQ(to_string(*options.optimizer), "muon");
  EXPECT_EQ(options.epochs, 8);
  EXPECT_EQ(options.batch_size, 2000);
  EXPECT_EQ(options.loss_reduction, "sum");
  EXPECT_EQ(options.augment, "crop=2,reflect,alternating-flip");
  EXPECT_EQ(options.freeze, "whiten=3");
  EXPECT_TRUE(*options.tta);
  // The decay of a step at the peak: 2e-6 per sample of the batch.
  EXPECT_DOUBLE_EQ(*options.weight_decay * *options.lr, 0.004);
}

TEST(Recipe, Speedrun96HasTheFlagsOfItsRecord) {
  const TrainOptions options = resolved({.model = "speedrun-96"});
  EXPECT_EQ(to_string(*options.optimizer), "muon");
  EXPECT_EQ(options.epochs, 37);
  EXPECT_EQ(options.batch_size, 512);
  EXPECT_EQ(options.augment, "crop=4,reflect,alternating-flip,cutout=12");
  // Of the script: rates for sums of losses, as sums over steps with Nesterov's momentum.
  const double rate = 9 / (1024 * (1 + 1 / (1 - std::get<MuonOptions>(*options.optimizer).sgd_momentum)));
  EXPECT_NEAR(*std::get<MuonOptions>(*options.optimizer).sgd_lr, rate, 0.005 * rate);
  EXPECT_NEAR(*options.bias_lr, 64 * rate, 0.01 * 64 * rate);
  // The logits of speedrun are divided by 256, and those of speedrun-96 by 9. The rates have nearly the same effect on
  // them.
  const double effect =
      *std::get<MuonOptions>(*resolved({.model = "speedrun"}).optimizer).sgd_lr / (256.0 * 256);
  EXPECT_NEAR(*std::get<MuonOptions>(*options.optimizer).sgd_lr / (9.0 * 9), effect, 0.5 * effect);
  EXPECT_DOUBLE_EQ(*options.weight_decay * *options.lr, 2e-6 * 512);
  EXPECT_EQ(resolved({.model = "speedrun-96", .max_steps = 9}).epochs, 0);
}

TEST(Recipe, DefaultRatesFollowTheBatchSizeAndGivenOnesDoNot) {
  const auto lr = [](TrainOptions options) { return *resolved(std::move(options)).lr; };
  EXPECT_EQ(lr({}), 0.2);
  EXPECT_EQ(lr({.batch_size = 128}), 0.2);
  EXPECT_EQ(lr({.batch_size = 32}), 0.05);
  EXPECT_EQ(lr({.batch_size = 24}), 0.0375) << "not 0.037500000000000006";
  EXPECT_EQ(lr({.batch_size = 256}), 0.4);
  EXPECT_EQ(lr({.batch_size = 1 << 20}), 0.8) << "four times the default at most";
  EXPECT_EQ(lr({.batch_size = 32, .lr = 0.2}), 0.2);
  EXPECT_EQ(lr({.model = "lenet", .batch_size = 64}), 0.025);
  EXPECT_EQ(lr({.model = "lenet", .batch_size = 256}), 0.05) << "more would diverge without batch norm";
  EXPECT_EQ(lr({.batch_size = 32, .optimizer = AdamWOptions()}), 5e-4) << "by the square root";
  EXPECT_EQ(lr({.batch_size = 32, .optimizer = MuonOptions()}), lr({.optimizer = MuonOptions()}));
  EXPECT_EQ(resolved({.batch_size = 32, .optimizer = MuonOptions()}).bias_lr, 0.05) << "of its SGD";
  EXPECT_EQ(resolved({.batch_size = 32, .optimizer = MuonOptions{.sgd_lr = 0.3}}).bias_lr, 0.3);
  EXPECT_EQ(lr({.model = "speedrun", .batch_size = 500}), 0.24);
  EXPECT_EQ(lr({.overfit_batch = true, .batch_size = 32}), 0.2);
}

TEST(Recipe, PhotographsHaveALargerNetworkAndSmallerBatches) {
  TrainOptions options{.data = {.dataset = "folder", .data = "some/photos/"}};
  const CommandLine line = train_command_line(options);
  set_default_model(options, line);
  EXPECT_EQ(options.model, "resnet18");
  EXPECT_EQ(options.data.image_size, 128);
  const TrainOptions full = resolved(options);
  EXPECT_EQ(full.batch_size, 32);
  EXPECT_EQ(full.lr, 0.0125);
  EXPECT_EQ(full.out, "runs/resnet18-photos");
  options.batch_size = 64;
  EXPECT_EQ(resolved(options).lr, 0.025);
  const auto out = [](const char* data) {
    return *resolved({.data = {.dataset = "folder", .data = data}}).out;
  };
  EXPECT_EQ(out("photos/."), "runs/resnet20-photos");
  EXPECT_EQ(out("/"), "runs/resnet20-folder");
  TrainOptions given{.model = "lenet", .data = {.dataset = "folder", .image_size = 48}};
  CommandLine other = train_command_line(given);
  const char* const arguments[] = {"convoy-train", "--model", "lenet"};
  ASSERT_TRUE(other.parse(3, arguments));
  set_default_model(given, other);
  EXPECT_EQ(given.model, "lenet");
  EXPECT_EQ(given.data.image_size, 48);
}

TEST(Recipe, FlagsAndOtherOptimizersReplaceIt) {
  const TrainOptions given = resolved({.model = "speedrun", .batch_size = 500, .lr = 0.1, .tta = false});
  EXPECT_DOUBLE_EQ(*given.weight_decay * *given.lr, 0.001);
  EXPECT_FALSE(*given.tta);
  const TrainOptions sgd = resolved({.model = "speedrun", .optimizer = SgdOptions()});
  EXPECT_EQ(sgd.lr, 0.2);
  EXPECT_EQ(sgd.loss_reduction, "mean");
  EXPECT_EQ(sgd.freeze, "none");
  EXPECT_EQ(sgd.bias_lr, std::nullopt) << "that of --lr";
  EXPECT_EQ(to_string(*resolved({}).optimizer), "sgd");
  EXPECT_EQ(resolved({.optimizer = MuonOptions()}).bias_lr, 0.2) << "that of --sgd-lr";
  EXPECT_EQ(to_string(*resolved({.model = "speedrun", .overfit_batch = true}).optimizer), "sgd");
}

}  // namespace
}  // namespace convoy::testing
