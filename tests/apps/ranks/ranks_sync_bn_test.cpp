// Tests of models with batch norm on several ranks: --sync-bn, --bn-buffers, and the warning without them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/apps/rank_runs.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

/// 23 images in batches of 5: the last batch has 3 images, one per rank on three ranks. With micro-batches of
/// one sample, some micro-batches have samples on some ranks only.
constexpr int kImages = 23, kTestImages = 10;
const Arguments kSmall = {"--model",        "resnet20", "--image-size", "8", "--batch-size", "5",
                          "--epochs",       "0",        "--max-steps",  "6", "--precision",  "fp64",
                          "--deterministic"};

Arguments with(Arguments flags, const Arguments& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

class SyncBn : public ::testing::Test {
 protected:
  SyncBn() { write_digits(workshop.path("digits"), kImages, kTestImages); }

  std::vector<std::string> warnings(const std::string& out) const {
    std::vector<std::string> all;
    for (const Json& warning : workshop.events(out, "warning")) all.push_back(warning["message"]);
    return all;
  }

  Workshop workshop;
};

TEST_F(SyncBn, TrainsLikeASingleRank) {
  const Arguments flags = with(kSmall, {"--sync-bn"});
  const Outcome alone = train_on(workshop, "alone", 1, "", flags);
  ASSERT_EQ(alone.losses.size(), 6U);
  for (const auto& [ranks, comm] :
       {std::pair(2, "shm"), std::pair(3, "mpi"), std::pair(4, "thread"), std::pair(3, "tcp")}) {
    SCOPED_TRACE(comm);
    const Outcome found = train_on(workshop, comm, ranks, comm, flags);
    ASSERT_EQ(found.losses.size(), alone.losses.size());
    for (std::size_t step = 0; step < alone.losses.size(); ++step)
      EXPECT_NEAR(found.losses[step], alone.losses[step], 1e-9 * alone.losses[step]) << "step " << step + 1;
    EXPECT_NEAR(found.test_loss, alone.test_loss,
                1e-9 * alone.test_loss);  // computed with the running statistics
    EXPECT_EQ(found.test_count, kTestImages);
  }
}

// Its first filters come from the images of rank 0, and its batch norms have scales that are not trained.
TEST_F(SyncBn, SpeedrunTrainsLikeASingleRank) {
  const Arguments flags = {
      "--model",     "speedrun-small", "--batch-size",    "6",        "--epochs", "0", "--max-steps", "3",
      "--precision", "fp64",           "--deterministic", "--sync-bn"};
  // Muon is the default; --zero needs another optimizer.
  for (const auto& [optimizer, zero] : {std::pair("muon", "0"), std::pair("sgd", "2")}) {
    const Arguments more = with(flags, {"--optimizer", optimizer});
    const Outcome alone = train_on(workshop, std::string("alone-") + optimizer, 1, "", more);
    const Outcome found = train_on(workshop, optimizer, 2, "shm", with(more, {"--zero", zero}));
    ASSERT_EQ(alone.losses.size(), 3U);
    ASSERT_EQ(found.losses.size(), alone.losses.size());
    for (std::size_t step = 0; step < alone.losses.size(); ++step)
      EXPECT_NEAR(found.losses[step], alone.losses[step], 1e-9 * alone.losses[step])
          << optimizer << ", step " << step + 1;
    EXPECT_NEAR(found.test_loss, alone.test_loss, 1e-9 * alone.test_loss) << optimizer;
  }
}

TEST_F(SyncBn, RepeatsBitForBit) {
  const Arguments flags = with(kSmall, {"--sync-bn", "--micro-batch-size", "1"});
  const Outcome first = train_on(workshop, "first", 3, "thread", flags);
  const Outcome second = train_on(workshop, "second", 3, "thread", flags);
  EXPECT_EQ(first.losses, second.losses);
  EXPECT_EQ(first.hash, second.hash);
}

TEST_F(SyncBn, WarnsOfFewSamplesWithoutIt) {
  train_on(workshop, "local", 2, "shm", kSmall);
  ASSERT_EQ(warnings("local").size(), 1U);
  EXPECT_THAT(warnings("local")[0],
              HasSubstr("statistics over 2 samples, one rank's shard of --batch-size 5"));
  train_on(workshop, "synchronized", 2, "shm", with(kSmall, {"--sync-bn"}));
  EXPECT_TRUE(warnings("synchronized").empty());
}

TEST_F(SyncBn, MeanBuffersResumeBitForBit) {
  const Arguments flags = with(kSmall, {"--bn-buffers", "mean", "--save-every", "3", "--resume", "auto"});
  const Outcome whole = train_on(workshop, "whole", 2, "shm", flags);
  const Outcome local = train_on(workshop, "local", 2, "shm", with(kSmall, {"--save-every", "3"}));
  EXPECT_EQ(whole.losses, local.losses);  // training does not use running statistics
  EXPECT_NE(whole.test_loss, local.test_loss);

  const std::filesystem::path checkpoint = workshop.path("whole") / "checkpoints" / "step_000003";
  ASSERT_TRUE(std::filesystem::exists(checkpoint));
  const Outcome again =
      train_on(workshop, "again", 2, "shm",
               with(kSmall, {"--bn-buffers", "mean", "--save-every", "3", "--resume", checkpoint.string()}));
  EXPECT_EQ(again.hash, whole.hash);
  EXPECT_EQ(again.test_loss, whole.test_loss);
}

}  // namespace
}  // namespace convoy::testing
