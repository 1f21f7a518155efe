// Sweeps: each training of the grid is that of its flags, a sweep that is killed ends like one that is not, and what does
// not fit is refused before the first training.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Sweep : public ::testing::Test {
 protected:
  static Arguments short_training(const Arguments& more) {
    return with({"--log-every", "5", "--max-steps", "8", "--save-every", "2"}, more);
  }
  ProcessResult train(const std::string& out, const Arguments& more) const {
    return workshop.train(out, short_training(more));
  }
  Json summary(const std::string& out) const {
    return Json::parse(read_text(workshop.path(out) / "sweep.json"));
  }
  /// Returns the table at the end of an output, without the lines that name the directory.
  static std::string table_of(const std::string& text) {
    const std::size_t begin = text.rfind("\n  lr "), end = text.find("\noutput ", begin);
    return begin == std::string::npos || end == std::string::npos ? "no table in " + text
                                                                  : text.substr(begin, end - begin);
  }
  const Workshop workshop;
};

TEST_F(Sweep, TrainsEachCombinationAsATrainingOfItsOwn) {
  for (const char* ranks : {"1", "2"}) {
    const std::string out = std::string("all") + ranks, one = std::string("one") + ranks;
    const ProcessResult all =
        train(out, {"--sweep", "lr=0.02,0.1", "--sweep", "momentum=0,0.9", "--devices", ranks});
    ASSERT_EQ(all.exit_code, 0) << all.err;
    EXPECT_THAT(all.out, HasSubstr("training 3 of 4, --lr 0.1 --momentum 0 --seed 1\n"));
    ASSERT_THAT(train(one, {"--lr", "0.1", "--momentum", "0", "--devices", ranks}), Succeeds());
    const std::string own = out + "/lr-0.1-momentum-0";
    EXPECT_EQ(workshop.result(own)["parameters_hash"], workshop.result(one)["parameters_hash"]);
    EXPECT_THAT(read_text(workshop.path(own) / "config.toml"), Not(HasSubstr("sweep")));

    const Json trainings = summary(out)["trainings"];
    ASSERT_EQ(trainings.size(), 4U);
    EXPECT_EQ(trainings[2]["flags"], (Json{{"lr", "0.1"}, {"momentum", "0"}}));
    double highest = 0;
    std::string best;
    for (const Json& each : trainings) {
      const std::string run = each["directory"];
      const double accuracy = workshop.result(out + "/" + run)["test_accuracy"].get<double>();
      EXPECT_EQ(each["test_accuracy"]["mean"], accuracy) << run;
      if (accuracy <= highest) continue;
      highest = accuracy;
      best = fmt::format("--lr {} --momentum {}", each["flags"]["lr"].get<std::string>(),
                         each["flags"]["momentum"].get<std::string>());
    }
    EXPECT_THAT(all.out, AllOf(HasSubstr("\n  lr    momentum  test accuracy\n  0.02  0         "),
                               HasSubstr("\nhighest test accuracy: " + best + "\n")));
  }
}

TEST_F(Sweep, EndsWithTheSameTableAfterAKill) {
  const Arguments flags = {"--sweep", "lr=0.02,0.05,0.1", "--repeat", "2"};
  const ProcessResult whole = train("whole", flags);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(table_of(whole.out), AllOf(HasSubstr("\n  0.05  "), HasSubstr(" ± ")));

  const fs::path third = workshop.path("killed") / "lr-0.05" / "seed-1";
  Process process(workshop.train_arguments("killed", short_training(flags)));
  for (int i = 0; i < 6000 && process.running() && checkpoints_of(third).empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  process.send(SIGKILL);
  ASSERT_EQ(process.wait().signal, SIGKILL) << "ended before it was killed";
  ASSERT_FALSE(fs::exists(workshop.path("killed") / "lr-0.1" / "seed-2")) << "killed too late";

  EXPECT_THAT(train("killed", flags), FailsWith(2, "contains a run already"));
  const ProcessResult rest = train("killed", with(flags, {"--resume", "auto"}));
  ASSERT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_EQ(table_of(rest.out), table_of(whole.out));
  EXPECT_EQ(read_text(workshop.path("killed") / "sweep.json"),
            read_text(workshop.path("whole") / "sweep.json"));
  EXPECT_THAT(train("killed", {"--sweep", "lr=0.02,0.2", "--repeat", "2", "--resume", "auto"}),
              Prints(AllOf(HasSubstr("this training is complete"), HasSubstr("\n  0.2   "))))
      << "other values of the same flag";
}

TEST_F(Sweep, NamesTrainingsThatDiverge) {
  const ProcessResult run = train("run", {"--sweep", "lr=1e30,0.1", "--validation", "20%"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("lr-1e30: "));
  EXPECT_THAT(run.out, AllOf(HasSubstr("\n  lr    validation accuracy  test accuracy\n  1e30  diverged"),
                             HasSubstr("\nhighest validation accuracy: --lr 0.1\n")));
  EXPECT_EQ(summary("run")["trainings"][0]["diverged"], 1);
  EXPECT_THAT(train("alone", {"--lr", "1e30"}), FailsWith(6)) << "not a training of a sweep";
}

TEST_F(Sweep, RefusesWhatDoesNotFitBeforeTheFirstTraining) {
  const auto refusal = [&](const Arguments& more) {
    const ProcessResult run = train("run", more);
    EXPECT_EQ(run.exit_code, 2) << run.out << run.err;
    EXPECT_FALSE(fs::exists(workshop.path("run")));
    return run.err;
  };
  EXPECT_THAT(refusal({"--sweep", "lr=0.1,fast"}),
              HasSubstr("--sweep with --lr fast: --lr: found 'fast', expected a number"));
  EXPECT_THAT(refusal({"--sweep", "momentum=0.9,1.5"}),
              HasSubstr("--momentum: found 1.5, expected less than 1"));
  EXPECT_THAT(refusal({"--sweep", "optimizer=sgd,adam", "--momentum", "0.9"}),
              HasSubstr("--sweep with --optimizer adam: --momentum: not supported with --optimizer adam"));
  EXPECT_THAT(refusal({"--sweep", "learning-rate=0.1"}), HasSubstr("did you mean 'lr'?"));
  EXPECT_THAT(refusal({"--sweep", "seed=1,2"}), HasSubstr("expected --repeat N"));
  EXPECT_THAT(refusal({"--sweep", "data=a,b"}), HasSubstr("found 'data', expected a setting of a training"));
  EXPECT_THAT(refusal({"--sweep", "0.1,0.2"}), HasSubstr("found '0.1,0.2', expected NAME=VALUE,VALUE,..."));
  EXPECT_THAT(refusal({"--sweep", ""}), HasSubstr("found '', expected NAME=VALUE,VALUE,..."));
  EXPECT_THAT(refusal({"--sweep", "lr=0.1,,0.2"}),
              HasSubstr("found 'lr=0.1,,0.2', expected NAME=VALUE,VALUE,..."));
  EXPECT_THAT(refusal({"--sweep", "lr=0.1,0.1"}), HasSubstr("found --lr 0.1 twice"));
  EXPECT_THAT(refusal({"--sweep", "lr=0.1", "--sweep", "lr=0.2"}), HasSubstr("found lr twice"));
  EXPECT_THAT(refusal({"--sweep", "lr=0.1,0.2", "--dry-run"}), HasSubstr("--dry-run: found --sweep"));
  ASSERT_THAT(train("run", {}), Succeeds());
  EXPECT_THAT(train("run", {"--sweep", "lr=0.1,0.2"}), FailsWith(2, "run contains a single training"));
}

}  // namespace
}  // namespace convoy::testing
