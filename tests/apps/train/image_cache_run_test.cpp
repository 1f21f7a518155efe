// Tests of --image-cache: the same training with and without it, on one and several ranks, and errors of one rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/apps/rank_runs.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;

class ImageCacheRun : public ::testing::Test {
 protected:
  ImageCacheRun() { write_color_directories(workshop.path("colors"), 17); }

  Arguments flags(const Arguments& more = {}) const {
    return with({"--dataset", "folder", "--data", workshop.path("colors"), "--model", "resnet20",
                 "--image-size", "8", "--batch-size", "12", "--max-steps", "2", "--epochs", "0"},
                more);
  }
  Arguments with_cache(const Arguments& more = {}) const {
    return with(flags({"--image-cache", workshop.path("cache")}), more);
  }
  std::ptrdiff_t files_in_cache() const {
    return std::distance(fs::directory_iterator(workshop.path("cache")), {});
  }

  Workshop workshop;
};

TEST_F(ImageCacheRun, TrainsAsWithoutACache) {
  struct Ranks {
    int count;
    const char* comm;
  };
  for (const Ranks& ranks : {Ranks{1, ""}, Ranks{2, "thread"}, Ranks{2, "shm"}, Ranks{3, "tcp"}}) {
    SCOPED_TRACE(std::to_string(ranks.count) + " " + ranks.comm);
    fs::remove_all(workshop.path("cache"));
    const Outcome expected = train_on(workshop, "plain", ranks.count, ranks.comm, flags());
    for (const char* out : {"first", "second"}) {
      const Outcome found = train_on(workshop, out, ranks.count, ranks.comm, with_cache());
      EXPECT_EQ(found.losses, expected.losses);
      EXPECT_EQ(found.hash, expected.hash);
      EXPECT_EQ(found.test_loss, expected.test_loss);
      EXPECT_EQ(files_in_cache(), 1) << "temporary files are left";
    }
    for (const char* out : {"plain", "first", "second"}) fs::remove_all(workshop.path(out));
  }
}

TEST_F(ImageCacheRun, IsNamedAndServesAnEvaluation) {
  ASSERT_THAT(workshop.train("run", with_cache()),
              Prints(HasSubstr(", image cache " + (workshop.path("cache") / "colors-8-").string())));
  // Without the pixels of the files, only the cache can serve them.
  for (const auto& entry : fs::recursive_directory_iterator(workshop.path("colors"))) {
    if (!entry.is_regular_file()) continue;
    const auto time = entry.last_write_time();
    const auto bytes = entry.file_size();
    std::ofstream(entry.path(), std::ios::binary) << std::string(bytes, '?');
    fs::last_write_time(entry.path(), time);
  }
  const std::string checkpoint = workshop.path("run").string();
  EXPECT_THAT(
      workshop.run("convoy-evaluate", {"--checkpoint", checkpoint, "--image-cache", workshop.path("cache")}),
      Succeeds());
  EXPECT_EQ(workshop.run("convoy-evaluate", {"--checkpoint", checkpoint}).exit_code, 3);
}

TEST_F(ImageCacheRun, EndsAllRanksWithTheErrorOfTheOneThatCannotWrite) {
  std::ofstream(workshop.path("cache")) << "a file";
  const std::vector<ProcessResult> results = run_by_hand(2, workshop.train_arguments("run", with_cache()));
  EXPECT_EQ(results[0].exit_code, 8) << results[0].err;
  EXPECT_THAT(results[0].err,
              AllOf(HasSubstr("error: [rank 0] "), HasSubstr(workshop.path("cache").string())));
  EXPECT_EQ(results[1].exit_code, 4) << results[1].err;
  EXPECT_THAT(results[1].err,
              AllOf(HasSubstr("error: [rank 1] "), HasSubstr("rank 0: " + workshop.path("cache").string())));
}

TEST_F(ImageCacheRun, NamesTheCorruptImagesOfAllRanks) {
  std::ofstream(workshop.path("colors") / "train" / "blue" / "image100.bmp") << "BM, but nothing more";
  std::ofstream(workshop.path("colors") / "test" / "red" / "image101.bmp") << "BM, but nothing more";
  const Arguments command = workshop.train_arguments("run", with_cache());
  std::vector<int> codes;
  for (const ProcessResult& result : run_by_hand(2, command)) {
    codes.push_back(result.exit_code);
    EXPECT_THAT(result.exit_code, AnyOf(3, 4)) << "its own error, or that of the rank that was first\n"
                                               << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("2 of 72 images cannot be read"), HasSubstr("blue/image100.bmp"),
                      HasSubstr("red/image101.bmp"), HasSubstr("; --skip-corrupt leaves them out")));
  }
  EXPECT_THAT(codes, Contains(3));
  const Outcome expected = train_on(workshop, "plain", 2, "tcp", flags({"--skip-corrupt"}));
  EXPECT_EQ(train_on(workshop, "cached", 2, "tcp", with_cache({"--skip-corrupt"})).hash, expected.hash);
}

}  // namespace
}  // namespace convoy::testing
