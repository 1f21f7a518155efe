// Trainings with --validation, --patience and the schedule plateau: which images decide, when a training ends or its
// rate falls, and what it reports.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "convoy/engine/training/callback.h"
#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Returns the JSON result of convoy-evaluate on a part of the data set.
Json evaluate(const Workshop& workshop, const std::string& out, const std::string& split) {
  return workshop.evaluated(checkpoints_of(workshop.path(out)).back(), {"--split", split});
}

TEST(Validation, DecidesDuringTheTrainingAndTheTestSetIsEvaluatedAtTheEnd) {
  const Workshop workshop;
  const ProcessResult run = workshop.train("run", {"--validation", "25%"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("240 training, 80 validation and 100 test images"),
                             HasSubstr("evaluation at step 8: validation accuracy "),
                             HasSubstr("\n  validation accuracy "), HasSubstr("\n  test accuracy ")));
  EXPECT_THAT(read_text(workshop.path("run") / "config.toml"), HasSubstr("validation = '25%'\n"));
  EXPECT_EQ(workshop.events("run", "start")[0]["validation_images"], 80);
  const std::vector<Json> evaluations = workshop.events("run", "eval");
  ASSERT_EQ(evaluations.size(), 2u);
  for (const Json& each : evaluations) {
    EXPECT_EQ(each["split"], "validation");
    EXPECT_EQ(each["count"], 80);
  }
  const Json result = workshop.result("run");
  const Json test = evaluate(workshop, "run", "test"), validation = evaluate(workshop, "run", "validation");
  EXPECT_EQ(test["count"], 100);
  EXPECT_EQ(result["test_accuracy"], test["accuracy"]);
  EXPECT_NEAR(result["test_loss"].get<double>(), test["loss"].get<double>(), 1e-6);
  EXPECT_EQ(test["recall"].size(), 10u);
  EXPECT_GE(test["top5_accuracy"].get<double>(), test["accuracy"].get<double>());
  EXPECT_NEAR(test["macro"]["recall"].get<double>(), test["accuracy"].get<double>(), 1e-12)
      << "as many images of each class";
  EXPECT_EQ(validation["count"], 80);
  EXPECT_EQ(result["validation_accuracy"], validation["accuracy"]);
  EXPECT_EQ(validation["images"], Json(std::vector<int>(10, 8))) << "stratified by class";
  EXPECT_EQ(evaluate(workshop, "run", "train")["count"], 240);
}

TEST(Validation, IsTheSameOnAllRanksAndAfterAResume) {
  const Workshop workshop;
  const Arguments flags = {"--validation", "80", "--precision", "fp64", "--devices", "2",
                           "--save-every", "5",  "--keep-last", "0"};
  const ProcessResult whole = workshop.train("whole", flags);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const std::string middle = workshop.checkpoint("whole", 5);
  const ProcessResult rest = workshop.train("rest", with(flags, {"--resume", middle}));
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  const Json expected = workshop.result("whole");
  for (const char* key : {"parameters_hash", "validation_accuracy", "validation_loss", "test_accuracy"})
    EXPECT_EQ(workshop.result("rest")[key], expected[key]) << key;
  EXPECT_THAT(workshop.train("changed", with(flags, {"--resume", middle, "--validation", "60"})),
              FailsWith(5, "--validation 80, found --validation 60"));
}

TEST(Validation, RefusesOtherTextsAndTooManyImages) {
  const Workshop workshop;
  for (const char* text : {"", "0", "0%", "100%", "-5", "1.5", "10 %", "many"}) {
    const ProcessResult run = workshop.train("refused", {"--validation", text});
    EXPECT_EQ(run.exit_code, 2) << text;
    EXPECT_THAT(run.err, HasSubstr("--validation: found")) << text;
  }
  EXPECT_THAT(workshop.train("refused", {"--validation", "311"}),
              FailsWith(2, "--validation: 311 of 320 training images of 10 classes, expected 1 to 310"));
  ASSERT_EQ(workshop.train("without", {"--max-steps", "1"}).exit_code, 0);
  EXPECT_THAT(workshop.run("convoy-evaluate",
                           {"--checkpoint", workshop.path("without").string(), "--split", "validation"}),
              FailsWith(2, "--split validation: "));
}

// With a rate of 0 the accuracy stays as it is, so the first evaluation is the best.
TEST(Patience, EndsATrainingThatDoesNotImprove) {
  const Workshop workshop;
  const Arguments flags = {"--lr",         "0", "--patience",  "2", "--epochs", "9",
                           "--save-every", "5", "--keep-last", "0"};
  const auto train = [&](const std::string& out, const Arguments& more) {
    const ProcessResult run = workshop.train(out, with(flags, more));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  };
  EXPECT_THAT(train("early", {}),
              AllOf(HasSubstr("ends after 2 evaluations without a higher test accuracy; the "
                              "test images decide"),
                    HasSubstr("30 steps (ended early by --patience)")));
  EXPECT_EQ(workshop.result("early")["steps"], 30) << "epochs of ten steps";
  EXPECT_EQ(workshop.result("early")["stopped_early"], true);
  EXPECT_EQ(workshop.result("early")["best_step"], 10);
  EXPECT_THAT(train("early", {"--resume", "auto"}), HasSubstr("complete, nothing to do"));

  // The checkpoint of step 25 stores that one evaluation was no better.
  train("rest", {"--resume", workshop.checkpoint("early", 25)});
  EXPECT_EQ(workshop.result("rest")["steps"], 30);
  EXPECT_THAT(
      train("validated", {"--validation", "10%", "--devices", "2", "--patience", "1"}),
      AllOf(HasSubstr("without a higher validation accuracy\n"), Not(HasSubstr("test images decide"))));
  EXPECT_EQ(workshop.result("validated")["steps"], 18) << "epochs of nine steps";
  train("last", {"--epochs", "3"});
  EXPECT_EQ(workshop.result("last")["stopped_early"], false) << "its last step was due";
  train("trained", {"--patience", "9"});
  EXPECT_EQ(workshop.result("trained")["steps"], 90);
  EXPECT_EQ(workshop.result("trained")["stopped_early"], false);
}

// The rate of each step is that of the losses before it: of the epochs, or of the evaluations on held-out images.
TEST(Plateau, FollowsTheLossesAndResumesWithTheSameBytes) {
  const std::vector<std::pair<std::string, Arguments>> variants = {
      {"epoch", {"--log-every", "4"}},
      {"epoch", {"--devices", "2", "--micro-batch-size", "5"}},
      {"eval", {"--validation", "20%"}},
      {"eval", {"--validation", "20%", "--eval-every", "2", "--devices", "2"}}};
  for (const auto& [event, more] : variants) {
    const Workshop workshop;
    Arguments flags =
        with({"--schedule=plateau", "--lr=0.01", "--gamma=0.5", "--min-lr=0.001", "--plateau-patience=0",
              "--epochs=7", "--save-every=13", "--keep-last=0", "--plateau-threshold=0.9"},
             more);
    const ProcessResult whole = workshop.train("whole", flags);
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    training::ReduceOnPlateau plateau(0.01,
                                      {.factor = 0.5, .patience = 0, .minimum = 0.001, .threshold = 0.9});
    std::map<std::int64_t, double> rates = {{0, 0.01}};  // by the number of completed steps
    for (const Json& each : workshop.events("whole", event)) {
      plateau.add(each["loss"].get<double>());
      rates[each["step"].get<std::int64_t>()] = plateau.rate();
    }
    EXPECT_GE(rates.size(), 4U);
    for (const Json& step : workshop.events("whole", "step"))
      EXPECT_EQ(step["lr"].get<double>(),
                std::prev(rates.lower_bound(step["step"].get<std::int64_t>()))->second)
          << "step " << step["step"];
    EXPECT_LT(workshop.events("whole", "step").back()["lr"], 0.01) << "the rate never fell";
    flags.insert(flags.end(), {"--resume", (workshop.path("whole") / "checkpoints/step_000039").string()});
    const ProcessResult resumed = workshop.train("resumed", flags);
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(workshop.result("resumed")["parameters_hash"], workshop.result("whole")["parameters_hash"]);
  }
}

TEST(Plateau, RefusesWhatDoesNotFit) {
  const Workshop workshop;
  const auto refusal = [&](const Arguments& flags) {
    const ProcessResult run = workshop.train("run", flags);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    return run.err;
  };
  EXPECT_THAT(
      refusal({"--plateau-patience", "3"}),
      HasSubstr("--plateau-patience: not supported with --schedule cosine, expected --schedule plateau"));
  EXPECT_THAT(refusal({"--schedule", "plateau", "--gamma", "1"}), HasSubstr("expected less than 1"));
  EXPECT_THAT(refusal({"--schedule", "plateau", "--min-lr", "1"}), HasSubstr("--min-lr 1: expected at most"));
  EXPECT_THAT(refusal({"--schedule", "plateau", "--validation", "10%", "--eval-every", "0"}),
              HasSubstr("--schedule plateau: found --validation 10% and --eval-every 0"));
}

}  // namespace
}  // namespace convoy::testing
