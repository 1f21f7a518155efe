// Tests of convoy-bench-loader: counts, output and rejected flags. Times are not tested.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/loader/measure.h"
#include "tests/testing/support/image_files.h"
#include "tests/testing/support/process.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

class LoaderBench : public ::testing::Test {
 protected:
  /// Writes 7 training images of 2 classes and 2 test images to `directory`/data.
  LoaderBench() {
    for (int i = 0; i < 9; ++i)
      directory.write(std::filesystem::path("data") / (i < 7 ? "train" : "test") /
                          (i % 2 == 0 ? "ape" : "bee") / (std::to_string(i) + ".jpg"),
                      jpeg(Picture::ramp(12, 10, 3)));
  }

  ProcessResult run(const Arguments& more) const {
    Arguments arguments = {std::filesystem::read_symlink("/proc/self/exe").parent_path() /
                           "convoy-bench-loader"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  }
  void expect_refusal(const Arguments& arguments, int code, const std::string& what) const {
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, AllOf(StartsWith("convoy-bench-loader: error: "), HasSubstr(what)));
    EXPECT_EQ(result.out, "");
  }
  std::string data() const { return directory.path() / "data"; }

  TempDirectory directory;
};

TEST_F(LoaderBench, CountsImagesReadAndBatched) {
  const std::string file = directory.path() / "figures.json";
  const ProcessResult result =
      run({"--data", data(), "--batch-size", "3", "--epochs", "4", "--workers", "1", "--json", file});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("3 images each, 1 workers"), HasSubstr("crop 4, flip"),
                                HasSubstr("including reading")));
  std::ifstream in(file);
  const Json figures = Json::parse(in);
  EXPECT_EQ(figures["image"], Json({10, 12, 3}));
  EXPECT_EQ(figures["reading"]["images"], 9);
  ASSERT_EQ(figures["epochs"].size(), 4u);
  for (const Json& epoch : figures["epochs"]) {
    EXPECT_EQ(epoch["images"], 7);
    EXPECT_GT(epoch["seconds"].get<double>(), 0);
  }
  EXPECT_EQ(figures["first_epoch"]["images"], 7);
  EXPECT_EQ(figures["workers"], 1);
  EXPECT_GT(figures["machine"]["cores"].get<int>(), 0);
}

TEST_F(LoaderBench, FirstEpochIncludesReadingOfTrainingImages) {
  const bench::LoaderFigures figures{.note = "",
                                     .image = {},
                                     .transform = "",
                                     .reading = {.images = 10, .seconds = 20, .core_seconds = 40},
                                     .epochs = {{.images = 5, .seconds = 1, .core_seconds = 2},
                                                {.images = 5, .seconds = 3, .core_seconds = 4}}};
  const bench::LoaderTime first = figures.first_epoch();
  EXPECT_EQ(first.images, 5);
  EXPECT_DOUBLE_EQ(first.seconds, 11);
  EXPECT_DOUBLE_EQ(first.core_seconds, 22);
  const Json json = bench::to_json(figures);
  EXPECT_DOUBLE_EQ(json["reading"]["images_per_core_second"].get<double>(), 0.25);
  EXPECT_DOUBLE_EQ(json["images_per_second"]["highest"].get<double>(), 5);
  EXPECT_DOUBLE_EQ(json["images_per_core_second"]["lowest"].get<double>(), 1.25);
}

TEST_F(LoaderBench, RejectsInvalidFlags) {
  expect_refusal({}, 2, "--data is missing");
  expect_refusal({"--data", directory.path() / "none"}, 3, "is no directory");
  expect_refusal({"--data", data(), "--epochs", "0"}, 2, "--epochs");
  expect_refusal({"--data", data(), "--augment", "twist"}, 2, "--augment: found 'twist'");
  expect_refusal({"--data", data(), "--json", directory.path() / "missing" / "figures.json"}, 8, "--json");
}

}  // namespace
}  // namespace convoy::testing
