// Tests of convoy-bench-layers: selected layers, shapes and rejected flags. Times are not tested.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/layers/layer_share.h"
#include "convoy/models/models.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/process.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

models::Model model_of(const std::string& name, int side) {
  return models::make(name, {.input = {side, side, 3}, .device = Device::cpu()});
}

std::string to_string(const bench::LayerPair& pair) {
  return pair.name + " " + pair.input.text() + " " + pair.output.text();
}

TEST(LayerPairs, HaveTheShapesOfTheNetwork) {
  const models::Model model = model_of("resnet18", 32);
  const std::vector<bench::LayerPair> pairs = bench::layer_pairs(model, 4);
  ASSERT_EQ(pairs.size(), 20u);
  EXPECT_EQ(to_string(pairs[0]), "conv1 [4, 32, 32, 3] [4, 32, 32, 64]");
  EXPECT_EQ(to_string(pairs[5]), "layer2.0.conv1 [4, 32, 32, 64] [4, 16, 16, 128]");
  EXPECT_EQ(to_string(pairs[6]), "layer2.0.conv2 [4, 16, 16, 128] [4, 16, 16, 128]");
  EXPECT_EQ(to_string(pairs[7]), "layer2.0.downsample.0 [4, 32, 32, 64] [4, 16, 16, 128]");
  EXPECT_EQ(to_string(pairs[8]), "layer2.1.conv1 [4, 16, 16, 128] [4, 16, 16, 128]");
  EXPECT_EQ(to_string(pairs[19]), "layer4.1.conv2 [4, 4, 4, 512] [4, 4, 4, 512]");
  for (std::size_t i = 0; i < pairs.size(); ++i) EXPECT_EQ(pairs[i].takes_images, i == 0);
}

TEST(LayerPairs, ReferToTheModulesOfTheNetwork) {
  const models::Model model = model_of("resnet50", 128);
  const std::vector<bench::LayerPair> pairs = bench::layer_pairs(model, 1);
  ASSERT_EQ(pairs.size(), 53u);
  EXPECT_EQ(to_string(pairs[1]), "layer1.0.conv1 [1, 32, 32, 64] [1, 32, 32, 64]");  // after the max-pool
  std::size_t filters = 0;
  for (const bench::LayerPair& pair : pairs) {
    EXPECT_EQ(pair.convolution->infer(pair.input).shape(), pair.output) << pair.name;
    EXPECT_EQ(pair.norm->infer(pair.output).shape(), pair.output) << pair.name;
    filters += pair.convolution->parameters().size();
  }
  EXPECT_EQ(filters, 53u);
}

TEST(LayerPairs, RequireABatchNormAfterEachConvolution) {
  EXPECT_THAT(message_of<UsageError>([] { bench::layer_pairs(model_of("lenet", 32), 1); }),
              HasSubstr("--model lenet: found 'conv1' without a batch norm after it"));
}

TEST(LayerShare, IsTheSumOfPairsDividedByTheStepPerRound) {
  const bench::LayerShare share{.pairs = {}, .pair_ms = {{1, 2}, {4, 4}}, .step_ms = {4, 10}};
  EXPECT_THAT(share.shares(), ElementsAre(0.75, 0.8));
}

ProcessResult run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(),
                   std::filesystem::read_symlink("/proc/self/exe").parent_path() / "convoy-bench-layers");
  return run_program(arguments);
}

TEST(Layers, WriteResultsAndSettings) {
  const TempDirectory directory;
  const std::string file = directory.path() / "figures.json";
  const ProcessResult result = run({"--model", "resnet20", "--image-size", "8", "--batch-size", "2",
                                    "--rounds", "3", "--warmup", "1", "--threads", "1", "--json", file});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("| layer3.0.downsample.0 | Conv2d 32 -> 64, 1x1 stride 2 |"));
  std::ifstream in(file);
  const Json figures = Json::parse(in);
  EXPECT_EQ(figures["rounds"], 3);
  EXPECT_EQ(figures["threads"], 1);
  EXPECT_EQ(figures["pairs"].size(), 21u);
  for (const Json& pair : figures["pairs"]) EXPECT_GT(pair["ms"]["lowest"].get<double>(), 0);
  EXPECT_GT(figures["share"]["lowest"].get<double>(), 0);
  EXPECT_LE(figures["share"]["lowest"].get<double>(), figures["share"]["highest"].get<double>());
}

TEST(Layers, RejectInvalidFlags) {
  for (const auto& [flags, code, what] :
       {std::tuple{std::vector<std::string>{"--device", "cuda"}, 2, "--device: found cuda, expected cpu"},
        std::tuple{std::vector<std::string>{"--rounds", "0"}, 2, "--rounds"},
        std::tuple{std::vector<std::string>{"--json", "/nowhere/figures.json"}, 8, "--json /nowhere"}}) {
    const ProcessResult result = run(flags);
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(what));
    EXPECT_EQ(result.out, "");
  }
}

}  // namespace
}  // namespace convoy::testing
