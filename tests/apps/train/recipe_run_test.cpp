// Trainings with the flags of the speed recipe: sums of losses, early ends of learning rates, several views.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

// A batch of 32 = 2^5 images: multiplying all gradients by it and dividing the rate by it is exact.
TEST(RecipeRun, SumOfLossesWithSmallerRateGivesTheSameBytes) {
  const Workshop workshop;
  const Arguments common = {"--max-steps", "6",        "--weight-decay", "0",
                            "--schedule",  "constant", "--eval-every",   "0"};
  const auto train = [&](const std::string& out, const Arguments& more) {
    EXPECT_THAT(workshop.train(out, with(common, more)), Succeeds());
  };
  train("mean", {"--lr", "0.0625"});
  train("sum", {"--lr", "0.001953125", "--loss-reduction", "sum"});
  EXPECT_EQ(workshop.result("sum")["parameters_hash"], workshop.result("mean")["parameters_hash"]);
  const std::vector<Json> mean = workshop.events("mean", "step"), sum = workshop.events("sum", "step");
  ASSERT_EQ(mean.size(), sum.size());
  for (std::size_t i = 0; i < mean.size(); ++i)
    EXPECT_NEAR(sum[i]["loss"].get<double>(), mean[i]["loss"].get<double>(), 1e-6)
        << "the log has the mean loss in both";
}

TEST(RecipeRun, SumOfLossesIsThatOfAllMicroBatchesAndRanks) {
  const Workshop workshop;
  const auto loss_of = [&](const std::string& out, const std::string& reduction, const Arguments& more) {
    EXPECT_THAT(workshop.train(out, with({"--max-steps", "4", "--lr", "0.002", "--precision", "fp64",
                                          "--eval-every", "0", "--loss-reduction", reduction},
                                         more)),
                Succeeds());
    return workshop.events(out, "step").back()["loss"].get<double>();
  };
  const double whole = loss_of("whole", "sum", {});
  EXPECT_NEAR(loss_of("micro", "sum", {"--micro-batch-size", "8"}), whole, 1e-9);
  EXPECT_NEAR(loss_of("ranks", "sum", {"--devices", "2"}), whole, 1e-9);
  EXPECT_GT(std::abs(whole - loss_of("mean", "mean", {})), 1e-4);
}

TEST(RecipeRun, MixedLabelsAreTheSameOnMicroBatchesAndRanksAndAfterAResume) {
  const Workshop workshop;
  const Arguments common = {"--max-steps",  "6",   "--precision", "fp64", "--eval-every",     "0",
                            "--mixup",      "0.8", "--cutmix",    "1",    "--random-erasing", "0.3",
                            "--save-every", "3",   "--keep-last", "0"};
  const auto train = [&](const std::string& out, const Arguments& more) {
    const std::string hash = workshop.trained_hash(out, with(common, more));
    return std::pair(workshop.events(out, "step").back()["loss"].get<double>(), hash);
  };
  const auto [loss, hash] = train("whole", {});
  EXPECT_NEAR(train("micro", {"--micro-batch-size", "5"}).first, loss, 1e-9);
  EXPECT_NEAR(train("ranks", {"--devices", "2"}).first, loss, 1e-9);
  EXPECT_EQ(train("workers", {"--workers", "0"}).second, hash);
  const std::string step = workshop.checkpoint("whole", 3);
  EXPECT_EQ(train("resumed", {"--resume", step}).second, hash);
  EXPECT_GT(std::abs(loss - train("cutmix", {"--mixup", "0"}).first), 1e-4);
  EXPECT_GT(std::abs(loss - train("not_erased", {"--random-erasing", "0"}).first), 1e-4);
}

TEST(RecipeRun, ActivationCheckpointingChangesNothingButTheMemory) {
  const Workshop workshop;
  const Arguments common = {"--model",      "resnet20", "--max-steps",  "3",
                            "--batch-size", "8",        "--eval-every", "0"};
  const std::vector<Arguments> all = {{},
                                      {"--devices", "2", "--sync-bn"},
                                      {"--devices", "2", "--zero", "2", "--micro-batch-size", "3"},
                                      {"--freeze", "conv1,bn1,layer1", "--precision", "bf16"}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Arguments flags = with(common, all[i]);
    const std::string name = std::to_string(i);
    const std::string hash = workshop.trained_hash("plain" + name, flags);
    EXPECT_EQ(workshop.trained_hash("checkpointed" + name, with(flags, {"--activation-checkpointing"})),
              hash);
  }
  EXPECT_THAT(workshop.train("lenet", {"--model", "lenet", "--activation-checkpointing"}),
              FailsWith(2, "--activation-checkpointing: lenet has no residual block"));
}

TEST(RecipeRun, AugmentationsAreRefusedWhereTheyCannotWork) {
  const Workshop workshop;
  const auto error = [&](const Arguments& flags) {
    const ProcessResult run = workshop.train("refused", flags);
    EXPECT_EQ(run.exit_code, 2);
    return run.err;
  };
  EXPECT_NE(error({"--cutmix", "1", "--overfit-batch"}).find("--cutmix 1: found --overfit-batch"),
            std::string::npos);
  EXPECT_NE(error({"--random-erasing", "1.5"}).find("--random-erasing"), std::string::npos);
}

TEST(RecipeRun, FlagsOfAdamAndOfTheRateHaveTheirEffects) {
  const Workshop workshop;
  const auto hash_of = [&](const std::string& out, const Arguments& more) {
    return workshop.trained_hash(out, with({"--max-steps", "4", "--eval-every", "0"}, more));
  };
  const std::string adam = hash_of("adam", {"--optimizer", "adam"});
  EXPECT_EQ(hash_of("defaults", {"--optimizer", "adam", "--adam-betas", "0.9, 0.999", "--adam-eps", "1e-8"}),
            adam);
  EXPECT_NE(hash_of("betas", {"--optimizer", "adam", "--adam-betas", "0.8,0.999"}), adam);
  EXPECT_NE(hash_of("eps", {"--optimizer", "adam", "--adam-eps", "0.001"}), adam);
}

TEST(RecipeRun, FrozenParametersKeepTheirValues) {
  const Workshop workshop;
  const auto hash_of = [&](const std::string& out, const Arguments& more) {
    return workshop.trained_hash(out, with({"--schedule", "constant", "--eval-every", "0"}, more));
  };
  const std::string after_one_step = hash_of("one", {"--max-steps", "1"});
  const std::string frozen =  // an epoch has ten steps
      hash_of("frozen", {"--max-steps", "7", "--freeze", "conv1=0.1,conv2=0.1,fc1=0.1,fc2=0.1,fc3=0.1"});
  EXPECT_EQ(frozen, after_one_step);
  EXPECT_NE(hash_of("partly", {"--max-steps", "7", "--freeze", "conv1=0.1"}), after_one_step);

  EXPECT_THAT(workshop.train("unknown", {"--freeze", "conv=1"}),
              FailsWith(2, "such as conv1, conv2, fc1, fc2, fc3"));
}

// Without gradients of the frozen layers, the others compute the same. With --zero 1 they have gradients, and a rate of 0.
TEST(RecipeRun, FreezingStopsGradientsAndChangesNothingElse) {
  const Workshop workshop;
  const auto hash_of = [&](const std::string& out, const Arguments& more) {
    return workshop.trained_hash(
        out, with({"--max-steps", "9", "--freeze", "conv1=0.3,conv2=0.5", "--momentum", "0", "--weight-decay",
                   "0", "--precision", "fp64", "--eval-every", "0"},
                  more));
  };
  const std::string frozen = hash_of("frozen", {"--devices", "2", "--save-every", "4", "--keep-last", "0"});
  EXPECT_EQ(hash_of("sharded", {"--devices", "2", "--zero", "1"}), frozen);
  for (const char* step :
       {"step_000004", "step_000008"})  // conv1 is frozen from step 3 on, conv2 from step 5 on
    EXPECT_EQ(hash_of(step, {"--devices", "2", "--save-every", "4", "--keep-last", "0", "--resume",
                             (workshop.path("frozen") / "checkpoints" / step).string()}),
              frozen)
        << step;
}

/// A training that is resumed in the middle ends with the same bytes; evaluation uses the saved weights.
void expect_resumable(const Arguments& flags) {
  const Workshop workshop;
  const Arguments all = with({"--max-steps", "8", "--save-every", "3", "--keep-last", "0", "--model",
                              "resnet20", "--batch-size", "16"},
                             flags);
  const ProcessResult whole = workshop.train("whole", all);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const std::filesystem::path checkpoints = workshop.path("whole") / "checkpoints";
  EXPECT_TRUE(std::filesystem::exists(checkpoints / "step_000003" / "other_weights.safetensors"));
  const ProcessResult resumed =
      workshop.train("resumed", with(all, {"--resume", (checkpoints / "step_000003").string()}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  const Json result = workshop.result("whole");
  EXPECT_EQ(workshop.result("resumed")["parameters_hash"], result["parameters_hash"]);
  EXPECT_EQ(read_text(workshop.path("resumed") / "checkpoints" / "step_000008" / "other_weights.safetensors"),
            read_text(checkpoints / "step_000008" / "other_weights.safetensors"));
  const Json manifest = Json::parse(read_text(checkpoints / "step_000008" / "manifest.json"));
  EXPECT_EQ(manifest["parameters_hash"], result["parameters_hash"]);

  EXPECT_EQ(workshop.evaluated(checkpoints / "step_000008")["accuracy"], result["test_accuracy"]);
}

TEST(RecipeRun, EmaResumesWithTheSameBytes) {
  expect_resumable({"--ema", "0.9"});
  expect_resumable({"--ema", "0.9", "--devices", "2", "--bn-buffers", "mean"});
  expect_resumable({"--ema", "0.9", "--devices", "2", "--zero", "2"});
}

// ZeRO divides the optimizer's state and the gradients, and changes no bit of the recipe's parts.
TEST(RecipeRun, PartsComputeTheSameWithShardedOptimizers) {
  const Workshop workshop;
  for (const Arguments& part :
       {Arguments{"--ema", "0.9"}, Arguments{"--loss-reduction", "sum", "--lr", "0.002"},
        Arguments{"--schedule", "linear", "--decay-biases"}}) {
    const auto hash_of = [&](const char* stage) {
      return workshop.trained_hash(
          part[0].substr(2) + stage,
          with({"--max-steps", "6", "--eval-every", "0", "--devices", "2", "--zero", stage}, part));
    };
    const std::string whole = hash_of("0");
    EXPECT_EQ(hash_of("1"), whole) << part[0];
    EXPECT_EQ(hash_of("2"), whole) << part[0];
  }
}

TEST(RecipeRun, EmaEvaluatesTheAverageAndTrainsAsWithout) {
  const Workshop workshop;
  const Arguments common = {"--max-steps", "6"};
  const auto train = [&](const std::string& out, const Arguments& more) {
    return workshop.trained(out, with(common, more));
  };
  const Json plain = train("plain", {}), ema = train("ema", {"--ema", "0.9"});
  EXPECT_EQ(workshop.events("ema", "step").back()["loss"], workshop.events("plain", "step").back()["loss"]);
  EXPECT_NE(ema["test_loss"], plain["test_loss"]);
  // A decay of almost 0 keeps the newest weights but for a rounding.
  EXPECT_NEAR(train("newest", {"--ema", "1e-12"})["test_loss"].get<double>(),
              plain["test_loss"].get<double>(), 1e-5);
  const ProcessResult none =
      workshop.train("plain", {"--max-steps", "9", "--ema", "0.9", "--resume", "auto"});
  EXPECT_NE(none.exit_code, 0);
  EXPECT_NE(none.err.find("trained with --ema 0, found --ema 0.9"), std::string::npos) << none.err;
}

TEST(RecipeRun, EvaluatesSixViewsAtTheEnd) {
  const Workshop workshop;
  const ProcessResult run = workshop.train("run", {"--tta"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json result = workshop.result("run");
  EXPECT_NE(run.out.find("averaged over six views"), std::string::npos);
  ASSERT_TRUE(result.contains("tta_accuracy"));
  EXPECT_NE(result["tta_loss"], result["test_loss"]);

  const Json evaluated = workshop.evaluated(checkpoints_of(workshop.path("run")).back(), {"--tta"});
  EXPECT_EQ(evaluated["tta"], true);
  EXPECT_EQ(evaluated["accuracy"], result["tta_accuracy"]);
  EXPECT_NEAR(evaluated["loss"].get<double>(), result["tta_loss"].get<double>(), 1e-6);

  // A complete run prints the same result again.
  EXPECT_THAT(workshop.train("run", {"--tta", "--resume", "auto"}),
              Prints(::testing::HasSubstr("averaged over six views")));
  EXPECT_FALSE(workshop.train("plain").out.find("averaged over") != std::string::npos);
}

TEST(RecipeRun, SpeedrunResumesWithTheSameBytes) {
  const Workshop workshop;
  write_color_directories(workshop.path("colors"), 32, 40);
  const Arguments recipe = {"--model",      "speedrun-small",
                            "--dataset",    "folder",
                            "--data",       workshop.path("colors").string(),
                            "--batch-size", "24",
                            "--epochs",     "4",
                            "--save-every", "3",
                            "--keep-last",  "0",
                            "--freeze",     "whiten=2",
                            "--eval-every", "0"};
  const ProcessResult whole = workshop.train("whole", recipe);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const ProcessResult resumed =
      workshop.train("resumed", with(recipe, {"--resume", workshop.checkpoint("whole", 6)}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(workshop.result("resumed")["parameters_hash"], workshop.result("whole")["parameters_hash"]);
  EXPECT_EQ(workshop.result("resumed")["tta_accuracy"], workshop.result("whole")["tta_accuracy"]);
}

}  // namespace
}  // namespace convoy::testing
