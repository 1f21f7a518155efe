// convoy-export: the file has the network, the classes and the normalization of the checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/apps/programs.h"
#include "tests/onnx/onnx_file.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Export, ComputesTheLogitsOfPredictions) {
  const Workshop workshop;
  write_color_directories(workshop.path("colors"));
  const std::string run = workshop.path("run").string(), onnx = workshop.path("model.onnx").string();
  ASSERT_THAT(workshop.run("convoy-train", {"--model", "lenet", "--dataset", "folder", "--data",
                                            workshop.path("colors").string(), "--batch-size", "12",
                                            "--epochs", "2", "--out", run, "--threads", "1"}),
              Succeeds());
  const std::string checkpoint = checkpoints_of(run).back().string();
  ASSERT_THAT(workshop.run("convoy-export", {"--checkpoint", checkpoint, "--onnx", onnx}),
              Prints(::testing::AllOf(HasSubstr("images [N, 3, 16, 16], pixels from 0 to 1"),
                                      HasSubstr("logits [N, 3]"))));

  const OnnxFile file = read_onnx(read_text(onnx));
  EXPECT_EQ(file.graph_name, "lenet");
  EXPECT_EQ(Json::parse(file.metadata.at("classes")), Json::parse(R"(["blue", "green", "red"])"));
  EXPECT_EQ(Json::parse(file.metadata.at("size")), Json({16, 16}));
  EXPECT_EQ(file.metadata.at("parameters_hash"), workshop.result("run")["parameters_hash"]);
  const Json spec = Json::parse(
      Json::parse(read_text(std::filesystem::path(checkpoint) / "manifest.json"))["extra"]["input"]
          .get<std::string>());
  EXPECT_EQ(Json::parse(file.metadata.at("mean")), spec["mean"]);
  const Json deviations = Json::parse(file.metadata.at("std"));
  for (std::size_t c = 0; c < 3; ++c)
    EXPECT_NEAR(deviations[c].get<double>() * spec["inverse_std"][c].get<double>(), 1, 0x1p-22);  // two f32

  // An image of one color, as convoy-predict and as the file see it.
  const int color[] = {200, 30, 90};
  const std::string image = workshop.directory().write("one.bmp", solid_bmp(16, 16, 200, 30, 90)).string();
  const std::string npy = workshop.path("logits.npy").string();
  ASSERT_THAT(
      workshop.run("convoy-predict", {"--checkpoint", checkpoint, image, "--logits", npy, "--device", "cpu"}),
      Succeeds());
  OnnxTensor pixels{{1, 3, 16, 16}, {}};
  for (const int channel : color) pixels.values.insert(pixels.values.end(), 256, channel / 255.0);
  const OnnxTensor logits = run_onnx(file, pixels);
  EXPECT_THAT(logits.shape, ElementsAre(1, 3));
  const std::string bytes = read_text(npy);
  for (std::size_t i = 0; i < 3; ++i) {
    float expected = 0;
    std::memcpy(&expected, bytes.data() + bytes.size() - 12 + 4 * i, 4);
    // Five layers of at most 400 f32 terms: 5 * 2^-24 * sqrt(400), relative to logits of about 1.
    EXPECT_NEAR(logits.values[i], expected, 1e-5 * (1 + std::abs(expected)));
  }
}

TEST(Export, RefusesInvalidArgumentsWithOneLine) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("run", {"--max-steps", "1"}).exit_code, 0);
  const std::string run = workshop.path("run").string(), onnx = workshop.path("x.onnx").string();
  const struct {
    Arguments arguments;
    int exit_code;
    const char* message;
  } mistakes[] = {{{}, 2, "--checkpoint: missing"},
                  {{"--checkpoint", run}, 2, "--onnx: missing"},
                  {{"--checkpoint", run, "--onx", onnx}, 2, "did you mean '--onnx'?"},
                  {{"--checkpoint", "absent", "--onnx", onnx}, 5, "absent: no checkpoint"},
                  {{"--checkpoint", run, "--onnx", "/proc/x.onnx"}, 8, "/proc/"}};
  for (const auto& mistake : mistakes) {
    const ProcessResult result = workshop.run("convoy-export", mistake.arguments);
    EXPECT_THAT(result, FailsWith(mistake.exit_code, mistake.message));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
  EXPECT_FALSE(std::filesystem::exists(onnx));
}

}  // namespace
}  // namespace convoy::testing
