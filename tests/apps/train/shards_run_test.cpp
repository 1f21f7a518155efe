// Tests of convoy-shard and --dataset shards: the same training as on the directory, other numbers of ranks, readers in
// Python, and errors with their exit codes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/apps/find_python.h"
#include "tests/apps/rank_runs.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

class ShardsRun : public ::testing::Test {
 protected:
  ShardsRun() { write_color_directories(workshop.path("colors"), 28, 24); }

  ProcessResult shard(const Arguments& more = {}) const {
    return workshop.run("convoy-shard",
                        with({"--data", workshop.path("colors"), "--out", workshop.path("shards")}, more));
  }
  Arguments data_flags(const std::string& dataset) const {
    return {"--dataset",    dataset, "--data", workshop.path(dataset == "folder" ? "colors" : dataset),
            "--image-size", "28"};
  }
  Arguments flags(const std::string& dataset, const Arguments& more = {}) const {
    return with(with(data_flags(dataset), {"--augment", "none", "--batch-size", "24"}), more);
  }

  Workshop workshop;
};

// The orders differ, so a batch of all images is compared: its sums are rounded differently, by some 1e-7 of each.
TEST_F(ShardsRun, TrainsAndEvaluatesAsOnTheDirectory) {
  ASSERT_THAT(shard(), Prints(AllOf(HasSubstr("144"), HasSubstr("verified"))));
  const Arguments whole = {"--batch-size", "72", "--epochs", "4"};
  const Outcome folder = train_on(workshop, "folder", 1, "", flags("folder", whole));
  const Outcome shards = train_on(workshop, "shards-run", 1, "", flags("shards", whole));
  EXPECT_EQ(folder.losses.size(), 4u);
  EXPECT_THAT(shards.losses, Pointwise(DoubleNear(1e-4), folder.losses));
  EXPECT_NEAR(shards.test_loss, folder.test_loss, 1e-4);
  EXPECT_EQ(shards.test_count, folder.test_count);
  const Json evaluated = workshop.evaluated(workshop.path("folder"),
                                            with(data_flags("shards"), {"--batch-size", "10"})),
             expected = workshop.evaluated(workshop.path("folder"), {"--batch-size", "10"});
  EXPECT_EQ(evaluated["confusion"], expected["confusion"]);
}

TEST_F(ShardsRun, ContinuesOnAnotherNumberOfRanks) {
  ASSERT_THAT(shard({"--shard-size", "1"}), Succeeds());
  // The rate is constant, since that of a schedule depends on the number of steps.
  const Arguments all =
      flags("shards", {"--augment", "crop=2,flip", "--shard-memory", "1", "--schedule", "constant"});
  const Outcome whole = train_on(workshop, "whole", 1, "", all);
  ASSERT_EQ(whole.losses.size(), 6u);
  train_on(workshop, "parts", 2, "thread", with(all, {"--max-steps", "2", "--epochs", "0"}));
  const Outcome rest = train_on(workshop, "parts", 3, "shm", with(all, {"--resume", "auto"}));
  ASSERT_EQ(rest.losses.size(), whole.losses.size());
  EXPECT_THAT(rest.losses, Pointwise(DoubleNear(1e-4), whole.losses));
}

TEST_F(ShardsRun, WritesTarFilesForOtherReaders) {
  ASSERT_THAT(shard(), Succeeds());
  const std::string python = find_python("tarfile");
  ASSERT_NE(python, "");
  // As WebDataset does: files whose names are equal before the first dot are a sample.
  const ProcessResult read = run_program({python, "-c", R"(
import pathlib, sys, tarfile
shards, images = map(pathlib.Path, sys.argv[1:])
classes = sorted(each.name for each in (images / "train").iterdir())
count = 0
for split in ("train", "test"):
    for shard in sorted(shards.glob(split + "-*.tar")):
        samples, last = {}, None
        with tarfile.open(shard) as tar:
            for member in tar:
                directory, name = member.name.rsplit("/", 1)
                key, _, extension = name.partition(".")
                if (directory, key) != last:
                    assert (directory, key) not in samples, "the files of a sample follow each other"
                    last = (directory, key)
                samples.setdefault(last, {})[extension] = tar.extractfile(member).read()
        for (directory, key), sample in samples.items():
            assert sorted(sample) == ["bmp", "cls"], sample.keys()
            assert classes[int(sample["cls"])] == directory
            assert sample["bmp"] == (images / split / directory / (key + ".bmp")).read_bytes()
            count += 1
print(count)
)",
                                          workshop.path("shards"), workshop.path("colors")});
  EXPECT_THAT(read, Prints("144\n"));
}

TEST_F(ShardsRun, NamesEachErrorWithItsExitCode) {
  EXPECT_THAT(workshop.run("convoy-shard", {"--data", workshop.path("colors")}), FailsWith(2, "--out"));
  EXPECT_THAT(workshop.run("convoy-shard", {"--verify", workshop.path("none")}), FailsWith(3, "index.json"));
  EXPECT_THAT(workshop.run("convoy-shard", {"--verify", workshop.path("none"), "--seed", "1"}),
              FailsWith(2, "--verify: found --seed"));
  EXPECT_THAT(workshop.run("convoy-train", {"--dataset", "shards"}),
              FailsWith(2, "the directory of the shards"));
  ASSERT_THAT(shard(), Succeeds());
  const auto train = [&](const Arguments& more) { return workshop.train("run", flags("shards", more)); };
  EXPECT_THAT(train({"--data", workshop.path("none")}), FailsWith(3, "index.json"));
  EXPECT_THAT(train({"--data", "http://127.0.0.1:9/x"}), FailsWith(9, "http://127.0.0.1:9/x/index.json"));
  EXPECT_THAT(train({"--validation", "10%"}), FailsWith(2, "--validation"));
  EXPECT_THAT(train({"--sampling", "balanced"}), FailsWith(2, "--sampling"));
  const fs::path torn = workshop.path("shards") / "train-000000.tar";
  fs::resize_file(torn, fs::file_size(torn) / 2);
  EXPECT_THAT(train({}), AllOf(FailsWith(3, "train-000000.tar"), FailsWith(3, "--skip-corrupt")));
  EXPECT_THAT(workshop.run("convoy-shard", {"--verify", workshop.path("shards")}),
              FailsWith(3, "train-000000.tar"));
  EXPECT_THAT(shard({"--seed", "2"}), FailsWith(3, "other images"));
}

TEST_F(ShardsRun, LeavesOutAMissingShard) {
  // Shards of the least size: 1 MiB has 200 images.
  write_color_directories(workshop.path("colors"), 28, 200);
  ASSERT_THAT(shard({"--shard-size", "1"}), Succeeds());
  ASSERT_TRUE(fs::remove(workshop.path("shards") / "train-000001.tar"));
  EXPECT_THAT(workshop.train("run", flags("shards")), FailsWith(3, "train-000001.tar"));
  const ProcessResult run = workshop.train("run", flags("shards", {"--skip-corrupt", "--epochs", "1"}));
  ASSERT_THAT(run, Succeeds());
  EXPECT_THAT(run.out + run.err, HasSubstr("train-000001.tar"));
}

// 2,000 JPEG files of CIFAR-10, to shards and back.
TEST(Cifar10Shards, KeepTheBytesOfTwoThousandJpegFiles) {
  const char* const root = std::getenv("CONVOY_DATA");
  const fs::path train = root == nullptr ? fs::path() : fs::path(root) / "cifar10/train";
  if (root == nullptr || !fs::is_directory(train))
    GTEST_SKIP() << "needs CONVOY_DATA, a directory with cifar10/train/";
  const TempDirectory directory;
  const fs::path images = directory.path() / "images", shards = directory.path() / "shards";
  for (const fs::directory_entry& label : fs::directory_iterator(train)) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& file : fs::directory_iterator(label)) files.push_back(file.path());
    std::sort(files.begin(), files.end());
    fs::create_directories(images / label.path().filename());
    for (std::size_t i = 0; i < 200; ++i)
      fs::copy_file(files.at(i), images / label.path().filename() / files[i].filename());
  }
  ASSERT_THAT(run_program({program("convoy-shard"), "--data", images, "--out", shards, "--shard-size", "1"}),
              Prints(HasSubstr("2000")));
  for (const fs::directory_entry& shard : fs::directory_iterator(shards))
    if (shard.path().extension() == ".tar") {
      ASSERT_THAT(run_program({"/bin/tar", "-xf", shard.path(), "-C", directory.path()}), Succeeds());
    }
  std::size_t count = 0;
  for (const fs::directory_entry& file : fs::recursive_directory_iterator(images)) {
    if (!file.is_regular_file()) continue;
    ++count;
    EXPECT_EQ(read_text(directory.path() / file.path().lexically_relative(images)), read_text(file.path()));
  }
  EXPECT_EQ(count, 2000u);
}

}  // namespace
}  // namespace convoy::testing
