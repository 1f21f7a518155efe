// convoy-bench-loader: what it counts and says, and what it refuses. How long things take is not tested.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/loader_measure.h"
#include "tests/support/image_files.h"
#include "tests/support/process.h"
#include "tests/support/temp_folder.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;
using Arguments = std::vector<std::string>;

class LoaderBench : public ::testing::Test {
 protected:
  /// 7 images of 2 classes for training, 2 for testing, in `folder`/data.
  LoaderBench() {
    for (int i = 0; i < 9; ++i)
      folder.write(std::filesystem::path("data") / (i < 7 ? "train" : "test") / (i % 2 == 0 ? "ape" : "bee") /
                       (std::to_string(i) + ".jpg"),
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
  std::string data() const { return folder.path() / "data"; }

  TempFolder folder;
};

TEST_F(LoaderBench, CountsWhatItReadAndMade) {
  const std::string file = folder.path() / "figures.json";
  const ProcessResult result =
      run({"--data", data(), "--batch-size", "3", "--epochs", "4", "--workers", "1", "--json", file});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("of 3 images, by 1 workers"), HasSubstr("crop 4, flip"),
                                HasSubstr("reading included")));
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

TEST_F(LoaderBench, CountsTheReadingOfTrainingImagesToTheFirstEpoch) {
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

TEST_F(LoaderBench, RefusesWhatItCannotMeasure) {
  expect_refusal({}, 2, "--data is missing");
  expect_refusal({"--data", folder.path() / "none"}, 3, "is no folder");
  expect_refusal({"--data", data(), "--epochs", "0"}, 2, "--epochs");
  expect_refusal({"--data", data(), "--augment", "twist"}, 2, "--augment: found 'twist'");
  expect_refusal({"--data", data(), "--json", folder.path() / "missing" / "figures.json"}, 8, "--json");
}

}  // namespace
}  // namespace convoy::testing
