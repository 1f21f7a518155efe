// --activation: checkpoints remember it, and every program builds the same network from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "convoy/engine/io/checkpoint.h"
#include "tests/apps/programs.h"
#include "tests/onnx/onnx_file.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

/// Replaces a line of the configuration in a checkpoint.
void replace_flag(const fs::path& checkpoint, const std::string& line, const std::string& by) {
  io::Manifest manifest = io::read_manifest(checkpoint);
  std::string& config = manifest.extra["config"];
  const std::size_t at = config.find(line);
  ASSERT_NE(at, std::string::npos) << config;
  config.replace(at, line.size(), by);
  io::write_manifest(checkpoint, manifest);
}

/// Trainings of speedrun-small on images of three colors.
class ActivationFlag : public ::testing::Test {
 protected:
  void SetUp() override { write_color_directories(workshop_.path("colors"), 25, 12); }

  ProcessResult train(const std::string& out, const Arguments& more) const {
    return workshop_.run(
        "convoy-train",
        with({"--model", "speedrun-small", "--dataset", "folder", "--data", workshop_.path("colors").string(),
              "--out", workshop_.path(out).string(), "--threads", "1", "--device", "cpu", "--batch-size", "8",
              "--max-steps", "6", "--eval-every", "0", "--no-tta"},
             more));
  }
  /// Trains, which must succeed. Returns the output.
  std::string trained(const std::string& out, const Arguments& more) const {
    const ProcessResult run = train(out, more);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  }
  std::string hash_of(const std::string& out) const {
    return workshop_.result(out)["parameters_hash"].get<std::string>();
  }
  /// Returns the test loss that convoy-evaluate computes.
  double evaluated(const fs::path& checkpoint) const {
    return workshop_.evaluated(checkpoint)["loss"].get<double>();
  }
  std::string config_of(const std::string& out) const {
    return read_text(workshop_.path(out) / "config.toml");
  }

  Workshop workshop_;
};

TEST_F(ActivationFlag, IsStoredAndEvaluatedAndResumed) {
  const Arguments flags = {"--activation", "silu", "--save-every", "3", "--keep-last", "0"};
  EXPECT_THAT(trained("whole", flags), HasSubstr("speedrun-small with SiLU, "));
  EXPECT_THAT(config_of("whole"), HasSubstr("activation = 'silu'\n"));
  EXPECT_THAT(trained("gelu", {}), Not(HasSubstr("SiLU")));
  EXPECT_NE(hash_of("gelu"), hash_of("whole"));

  const fs::path last = checkpoints_of(workshop_.path("whole")).back();
  const double loss = workshop_.result("whole")["test_loss"].get<double>();
  EXPECT_NEAR(evaluated(last), loss, 1e-6);

  // A resumed training takes the activation of its checkpoint, and refuses another one.
  const std::string middle = workshop_.checkpoint("whole", 3);
  EXPECT_THAT(trained("rest", {"--resume", middle}), HasSubstr("with SiLU"));
  EXPECT_EQ(hash_of("rest"), hash_of("whole"));
  EXPECT_THAT(config_of("rest"), HasSubstr("activation = 'silu'\n"));
  EXPECT_THAT(train("other", {"--resume", middle, "--activation", "gelu"}),
              FailsWith(5, "trained with --activation silu, found --activation gelu"));

  // The parameters alone do not tell: with another activation, they compute something else.
  replace_flag(last, "activation = 'silu'\n", "activation = 'gelu'\n");
  EXPECT_GT(std::abs(evaluated(last) - loss), 1e-3 * loss);
}

TEST_F(ActivationFlag, IsThatOfInitialParameters) {
  trained("base", {"--activation", "silu"});
  const std::string run = workshop_.path("base").string();
  const fs::path file = checkpoints_of(workshop_.path("base")).back() / "model.safetensors";
  EXPECT_THAT(trained("by_run", {"--init-from", run}), HasSubstr("with SiLU"));
  EXPECT_THAT(trained("by_file", {"--init-from", file.string()}), HasSubstr("with SiLU"));
  EXPECT_EQ(hash_of("by_file"), hash_of("by_run"));
  EXPECT_THAT(config_of("by_run"), HasSubstr("activation = 'silu'\n"));
  const fs::path copy = workshop_.path("copy.safetensors");
  fs::copy_file(file, copy);
  EXPECT_THAT(trained("by_copy", {"--init-from", copy.string()}), Not(HasSubstr("SiLU")));
  EXPECT_THAT(trained("named", {"--init-from", copy.string(), "--activation", "silu"}),
              HasSubstr("with SiLU"));
  EXPECT_EQ(hash_of("named"), hash_of("by_run"));
  // The run may be gone when a training that began with it continues.
  trained("rest", {"--init-from", run, "--max-steps", "3"});
  fs::remove_all(run);
  EXPECT_THAT(trained("rest", {"--init-from", run, "--resume", "auto"}), HasSubstr("with SiLU"));
}

TEST_F(ActivationFlag, IsExportedAndUsedInPredictions) {
  trained("run", {"--activation", "silu"});
  const std::string checkpoint = checkpoints_of(workshop_.path("run")).back().string();
  const std::string onnx = workshop_.path("model.onnx").string(), npy = workshop_.path("logits.npy").string();
  ASSERT_THAT(workshop_.run("convoy-export", {"--checkpoint", checkpoint, "--onnx", onnx}), Succeeds());
  const OnnxFile file = read_onnx(read_text(onnx));
  std::map<std::string, int> types;
  for (const OnnxNode& node : file.nodes) ++types[node.type];
  EXPECT_EQ(types["Sigmoid"], 7);
  EXPECT_EQ(types["Erf"], 0);

  const int color[] = {200, 30, 90};
  const std::string image = workshop_.directory().write("one.bmp", solid_bmp(25, 25, 200, 30, 90)).string();
  ASSERT_THAT(workshop_.run("convoy-predict",
                            {"--checkpoint", checkpoint, image, "--logits", npy, "--device", "cpu"}),
              Succeeds());
  OnnxTensor pixels{{1, 3, 25, 25}, {}};
  for (const int channel : color) pixels.values.insert(pixels.values.end(), 25 * 25, channel / 255.0);
  const OnnxTensor logits = run_onnx(file, pixels);
  const std::string bytes = read_text(npy);
  ASSERT_EQ(logits.values.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    float expected = 0;
    std::memcpy(&expected, bytes.data() + bytes.size() - 12 + 4 * i, 4);
    // Eight layers of at most 576 f32 terms: 8 * 2^-24 * sqrt(576), and batch norms, which amplify it.
    EXPECT_NEAR(logits.values[i], expected, 1e-4 * (1 + std::abs(expected)));
  }
}

}  // namespace
}  // namespace convoy::testing
