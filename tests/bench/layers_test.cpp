// Tests of convoy-bench-layers: selected layers, shapes and rejected flags. Times are not tested.
#include "tests/bench/bench_programs.h"

namespace convoy::testing {
namespace {

class Layers : public BenchProgram {
 protected:
  Layers() : BenchProgram("convoy-bench-layers", {"--threads=1", "--rounds=1", "--warmup=0"}) {}
  static std::string text(const Json& pair) {
    return pair["name"].get<std::string>() + " " + pair["input"].get<std::string>() + " " +
           pair["output"].get<std::string>();
  }
};

TEST_F(Layers, HaveTheShapesOfTheNetwork) {
  const Json pairs = measure({"--model=resnet18", "--image-size=32", "--batch-size=1"})["pairs"];
  ASSERT_EQ(pairs.size(), 20u);
  EXPECT_EQ(text(pairs[0]), "conv1 [1, 32, 32, 3] [1, 32, 32, 64]");
  EXPECT_EQ(text(pairs[5]), "layer2.0.conv1 [1, 32, 32, 64] [1, 16, 16, 128]");
  EXPECT_EQ(text(pairs[6]), "layer2.0.conv2 [1, 16, 16, 128] [1, 16, 16, 128]");
  EXPECT_EQ(text(pairs[7]), "layer2.0.downsample.0 [1, 32, 32, 64] [1, 16, 16, 128]");
  EXPECT_EQ(text(pairs[8]), "layer2.1.conv1 [1, 16, 16, 128] [1, 16, 16, 128]");
  EXPECT_EQ(text(pairs[19]), "layer4.1.conv2 [1, 4, 4, 512] [1, 4, 4, 512]");
}

TEST_F(Layers, FollowTheMaxPool) {
  const Json pairs = measure({"--model=resnet50", "--image-size=96", "--batch-size=1"})["pairs"];
  ASSERT_EQ(pairs.size(), 53u);
  EXPECT_EQ(text(pairs[1]), "layer1.0.conv1 [1, 24, 24, 64] [1, 24, 24, 64]");
}

TEST_F(Layers, WriteResultsAndSettings) {
  std::string out;
  const Json figures =
      measure({"--model=resnet20", "--image-size=8", "--batch-size=2", "--rounds=3", "--warmup=1"}, {}, &out);
  EXPECT_THAT(out, ::testing::HasSubstr("| layer3.0.downsample.0 | Conv2d 32 -> 64, 1x1 stride 2 |"));
  EXPECT_EQ(figures["rounds"], 3);
  EXPECT_EQ(figures["threads"], 1);
  EXPECT_EQ(figures["pairs"].size(), 21u);
  for (const Json& pair : figures["pairs"]) EXPECT_GT(pair["ms"]["lowest"].get<double>(), 0);
  EXPECT_GT(figures["share"]["lowest"].get<double>(), 0);
  EXPECT_LE(figures["share"]["lowest"].get<double>(), figures["share"]["highest"].get<double>());
}

TEST_F(Layers, RejectInvalidFlags) {
  expect_refusal({"--device=cuda"}, "--device: found cuda, expected cpu");
  expect_refusal({"--rounds=0"}, "--rounds");
  expect_refusal({"--json=/nowhere/figures.json"}, "--json /nowhere", 8);
  expect_refusal({"--model=lenet"}, "--model lenet: found 'conv1' without a batch norm after it");
}

}  // namespace
}  // namespace convoy::testing
