// --lr find: the rule that chooses a rate, and trainings that go on from where the search began.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "convoy/apps/train/rate_search.h"
#include "convoy/kernels/base/error.h"
#include "tests/apps/programs.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Returns 50 rates from 1e-4 on, each 1.2 times the one before.
std::vector<double> rising_rates() {
  std::vector<double> rates;
  for (int i = 0; i < 50; ++i) rates.push_back(1e-4 * std::pow(1.2, i));
  return rates;
}

TEST(RateSearch, TakesAThirdOfTheRateWithTheLowestAverage) {
  std::vector<double> losses(50, 2.0);
  for (std::size_t i = 10; i < 40; ++i) losses[i] = 2.0 - 0.05 * static_cast<double>(i - 9);
  for (std::size_t i = 40; i < 50; ++i) losses[i] = 4.0;
  losses[20] = 0.1;  // one lucky batch decides nothing
  const RateSearch search = choose_rate(rising_rates(), losses);
  EXPECT_NEAR(search.chosen, 1e-4 / 3 * std::pow(1.2, 39), 1e-3);
  EXPECT_EQ(search.chosen, std::stod(fmt::format("{:.2g}", search.chosen))) << "two digits";
  EXPECT_THAT(search.reason, AllOf(HasSubstr("a third of 0.12"), HasSubstr("from 2)")));
  EXPECT_EQ(search.losses, losses);
}

TEST(RateSearch, EndsAtALossThatIsNotFinite) {
  std::vector<double> losses = {2.0, 1.8, 1.5, kInfinite, 0.1};
  std::vector<double> rates = {1, 2, 3, 4, 5};
  EXPECT_EQ(choose_rate(rates, losses).chosen, 1);
}

TEST(RateSearch, RefusesLossesThatDoNotFall) {
  const auto refusal = [](const std::vector<double>& losses) {
    return message_of<NumericError>([&] { choose_rate(rising_rates(), losses); });
  };
  EXPECT_THAT(refusal(std::vector<double>(50, 2.3)),
              HasSubstr("--lr find: the loss falls at none of 50 rates from 0.0001"));
  EXPECT_THAT(refusal(std::vector<double>(50, kInfinite)), HasSubstr("falls at none"));
  EXPECT_THAT(refusal({}), HasSubstr("falls at none of 0 rates"));
}

TEST(RateSearch, TrainingIsThatOfTheFoundRate) {
  const Workshop workshop;
  const ProcessResult run = workshop.train("found", {"--lr", "find"});
  ASSERT_THAT(run, Prints(HasSubstr("; found: a third of ")));
  const Json start = workshop.events("found", "start")[0], search = start["lr_search"];
  const double chosen = search["chosen"];
  EXPECT_EQ(start["config"]["lr"], chosen);
  EXPECT_EQ(start["step"], 0);
  EXPECT_GE(search["rates"].size(), 20u);
  EXPECT_EQ(search["rates"].size(), search["losses"].size());
  EXPECT_GT(search["rates"].back(), 1000 * search["rates"].front().get<double>());
  EXPECT_THAT(read_text(workshop.path("found") / "config.toml"),
              HasSubstr(fmt::format("\nlr = {}\n", chosen)));
  // The state is untouched: parameters, buffers, the order of samples and the optimizer.
  for (const Arguments& more :
       {Arguments{}, Arguments{"--optimizer", "adam", "--model", "resnet20", "--max-steps", "2"}}) {
    const std::string name = more.empty() ? "found" : "found-adam";
    if (!more.empty()) {
      ASSERT_THAT(workshop.train(name, with(more, {"--lr", "find"})), Succeeds());
    }
    const double rate = workshop.events(name, "start")[0]["lr_search"]["chosen"];
    EXPECT_EQ(workshop.trained_hash(name + "-given", with(more, {"--lr", fmt::format("{}", rate)})),
              workshop.result(name)["parameters_hash"])
        << name;
  }
  // A resumed training has the rate, and does not search again.
  EXPECT_THAT(workshop.run("convoy-train", {"--config", (workshop.path("found") / "config.toml").string(),
                                            "--resume", "auto", "--out", workshop.path("found").string()}),
              Prints(HasSubstr("this training is complete")));
}

TEST(RateSearch, RanksHaveTheSameRate) {
  const Workshop workshop;
  const Arguments two = {"--devices", "2"};
  ASSERT_THAT(workshop.train("found", with(two, {"--lr", "find"})), Succeeds());
  const Json search = workshop.events("found", "start")[0]["lr_search"];
  // Each rank computes its part of the loss; a rank with another rate would end with other parameters.
  EXPECT_EQ(
      workshop.trained_hash("given", with(two, {"--lr", fmt::format("{}", search["chosen"].get<double>())})),
      workshop.result("found")["parameters_hash"]);
  ASSERT_THAT(workshop.train("alone", {"--lr", "find"}), Succeeds());
  const Json alone = workshop.events("alone", "start")[0]["lr_search"];
  for (std::size_t i = 0; i < 20; ++i)
    EXPECT_NEAR(search["losses"][i].get<double>(), alone["losses"][i].get<double>(), 1e-3)
        << "mean over all samples";
}

TEST(BatchSearch, FillsTheBudget) {
  // 10 for a sample and 100 besides: 180 for 8 samples and 260 for 16.
  EXPECT_EQ(largest_batch(8, 180, 260, 1000, 1000), 88) << "a multiple of 8";
  EXPECT_EQ(largest_batch(8, 180, 260, 1000, 50), 48);
  EXPECT_EQ(largest_batch(8, 180, 260, 155, 1000), 5);
  EXPECT_EQ(largest_batch(8, 180, 260, 50, 1000), 1);
  EXPECT_EQ(largest_batch(8, 180, 180, 1000, 64), 64) << "samples cost nothing";
}

TEST(BatchSearch, TrainingIsThatOfTheFoundSizeOnAnyNumberOfRanks) {
  const Workshop workshop;
  for (const char* ranks : {"1", "2"}) {
    const std::string name = std::string("found") + ranks;
    const Arguments more = {"--devices", ranks, "--max-steps", "3"};
    ASSERT_THAT(
        workshop.train(name, with(more, {"--batch-size", "auto"})),
        Prints(AllOf(HasSubstr("320; auto: "), HasSubstr(" for an image and "), HasSubstr("% of the "))));
    const Json config = workshop.events(name, "start")[0]["config"];
    EXPECT_EQ(config["batch-size"], 320) << "less than four times the default, and all images";
    EXPECT_EQ(config["lr"], 0.05) << "the default for this size";
    EXPECT_EQ(workshop.trained_hash(name + "-given", with(more, {"--batch-size", "320"})),
              workshop.result(name)["parameters_hash"]);
  }
  const std::pair<Arguments, std::string> cases[] = {
      {{"--resume", "auto"}, "--batch-size auto: found --resume"},
      {{"--micro-batch-size", "8"}, "--batch-size auto: found --micro-batch-size 8"},
      {{"--repeat", "2"}, "--batch-size auto: found --repeat 2"},
      {{"--overfit-batch"}, "--batch-size auto: found --overfit-batch"},
  };
  for (const auto& [flags, message] : cases)
    EXPECT_THAT(workshop.train("run", with(flags, {"--batch-size", "auto"})), FailsWith(2, message));
}

TEST(RateSearch, RefusesFlagsThatContradictIt) {
  const Workshop workshop;
  const std::pair<Arguments, std::string> cases[] = {
      {{"--resume", "auto"}, "--lr find: found --resume, whose training has its rate"},
      {{"--optimizer", "muon"}, "--lr find: found --optimizer muon"},
      {{"--bias-lr", "0.1"}, "--lr find: found --bias-lr"},
      {{"--lr-for", "head=0.1"}, "--lr find: found --lr-for head=0.1, expected a factor"},
      {{"--repeat", "2"}, "--lr find: found --repeat 2"},
  };
  for (const auto& [flags, message] : cases)
    EXPECT_THAT(workshop.train("run", with(flags, {"--lr", "find"})), FailsWith(2, message));
  EXPECT_THAT(workshop.train("run", {"--lr", "found"}),
              FailsWith(2, "--lr: found 'found', expected a number"));
  EXPECT_THAT(workshop.train("run", {"--lr", "find", "--print-config"}),
              Prints(HasSubstr("\nlr = 'find'\n")));
}

}  // namespace
}  // namespace convoy::testing
