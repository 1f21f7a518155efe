// Tests of convoy-bench-loader: counts, output and rejected flags. Times are not tested.
#include "tests/bench/bench_programs.h"
#include "tests/testing/support/image_files.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LoaderBench : public BenchProgram {
 protected:
  /// Writes 7 training images of 2 classes and 2 test images to `directory`/data.
  LoaderBench() : BenchProgram("convoy-bench-loader") {
    for (int i = 0; i < 9; ++i)
      directory.write(std::filesystem::path("data") / (i < 7 ? "train" : "test") /
                          (i % 2 == 0 ? "ape" : "bee") / (std::to_string(i) + ".jpg"),
                      jpeg(Picture::ramp(12, 10, 3)));
  }
  std::string data() const { return directory.path() / "data"; }
};

TEST_F(LoaderBench, CountsImagesReadAndBatched) {
  std::string out;
  const Json figures =
      measure({"--data", data(), "--batch-size", "3", "--epochs", "4", "--workers", "1"}, {}, &out);
  EXPECT_THAT(out, AllOf(HasSubstr("3 images each, 1 workers"), HasSubstr("crop 4, flip"),
                         HasSubstr("including reading")));
  EXPECT_EQ(figures["image"], Json({10, 12, 3}));
  EXPECT_EQ(figures["reading"]["images"], 9);
  ASSERT_EQ(figures["epochs"].size(), 4u);
  for (const Json& epoch : figures["epochs"]) {
    EXPECT_EQ(epoch["images"], 7);
    EXPECT_GT(epoch["seconds"].get<double>(), 0);
  }
  EXPECT_EQ(figures["workers"], 1);
  EXPECT_GT(figures["machine"]["cores"].get<int>(), 0);
  // The first epoch includes the reading of the training images, 7 of 9.
  const Json &first = figures["first_epoch"], &reading = figures["reading"], &made = figures["epochs"][0];
  EXPECT_EQ(first["images"], 7);
  for (const char* part : {"seconds", "core_seconds"})
    EXPECT_DOUBLE_EQ(first[part].get<double>(),
                     7.0 / 9 * reading[part].get<double>() + made[part].get<double>());
  EXPECT_DOUBLE_EQ(first["images_per_second"].get<double>(), 7 / first["seconds"].get<double>());
  EXPECT_GE(figures["images_per_second"]["highest"].get<double>(), 7 / made["seconds"].get<double>());
}

TEST_F(LoaderBench, RejectsInvalidFlags) {
  expect_refusal({}, "--data is missing");
  expect_refusal({"--data", directory.path() / "none"}, "is no directory", 3);
  expect_refusal({"--data", data(), "--epochs", "0"}, "--epochs");
  expect_refusal({"--data", data(), "--augment", "twist"}, "--augment: found 'twist'");
  expect_refusal({"--data", data(), "--json", directory.path() / "missing" / "figures.json"}, "--json", 8);
}

}  // namespace
}  // namespace convoy::testing
