// Tests of the example programs without data, for a few steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>

#include "tests/apps/programs.h"
#include "tests/testing/support/mpirun.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Examples : public ::testing::Test {
 protected:
  /// Returns the command for three steps on generated images.
  Arguments command(const std::string& name) const {
    return {program(name), (directory.path() / "absent").string(), "3"};
  }
  /// Runs a command on the CPU, so that machines with and without GPUs compute the same losses.
  ProcessResult run(const Arguments& arguments) const {
    auto environment = mpirun_environment(directory);
    environment["CUDA_VISIBLE_DEVICES"] = "";
    const ProcessResult result = run_program(arguments, {.environment = environment});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("absent not found: training on generated images"));
    EXPECT_THAT(result.out, HasSubstr("272474 parameters"));
    EXPECT_THAT(result.out, HasSubstr("epoch 1: test accuracy "));
    return result;
  }
  /// Returns the loss of the first step; NaN if it was not printed exactly once.
  static double first_loss(const ProcessResult& result) {
    const std::regex line("step 1/3  loss ([0-9.]+)\n");
    const std::sregex_iterator found(result.out.begin(), result.out.end(), line), end;
    return std::distance(found, end) == 1 ? std::stod((*found)[1]) : std::nan("");
  }

  TempDirectory directory;
};

TEST_F(Examples, TrainOnGeneratedImages) {
  const double loss = first_loss(run(command("minimal_cifar10")));
  EXPECT_NEAR(loss, std::log(10), 0.7) << "an untrained network guesses";
  EXPECT_EQ(first_loss(run(command("minimal_cifar10_ranks"))), loss) << "a single rank";
}

TEST_F(Examples, PrintTheirUsage) {
  for (const std::string name : {"minimal_cifar10", "minimal_cifar10_ranks"}) {
    const ProcessResult help = run_program({program(name), "--help"});
    EXPECT_EQ(help.exit_code, 0) << help.err;
    EXPECT_THAT(help.out, HasSubstr("usage: " + name + " [directory, default data/cifar10]"));
    EXPECT_EQ(run_program({program(name), "--epochs"}).exit_code, 2);
  }
  for (const std::string name : {"two_moons", "autoencoder", "char_model", "fine_tuning", "callbacks"}) {
    const ProcessResult help = run_program({program(name), "--help"});
    EXPECT_EQ(help.exit_code, 0) << help.err;
    EXPECT_THAT(help.out, StartsWith("usage: " + name + " "));
    EXPECT_EQ(run_program({program(name), "--epochs"}).exit_code, 2) << name;
  }
}

TEST_F(Examples, TwoMoonsAreSeparated) {
  const ProcessResult result =
      run_program({program("two_moons")}, {.environment = {{"CUDA_VISIBLE_DEVICES", ""}}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::smatch match;
  ASSERT_TRUE(std::regex_search(result.out, match, std::regex("test accuracy ([0-9.]+)%"))) << result.out;
  EXPECT_GE(std::stod(match[1]), 98);
}

TEST_F(Examples, CustomOpHasTheRightGradient) {
  const ProcessResult result =
      run_program({program("custom_op")}, {.environment = {{"CUDA_VISIBLE_DEVICES", ""}}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "the gradients of softplus are right\nsoftplus(-1) = 0.3133, slope 0.2689\n");
}

TEST_F(Examples, CustomProgramTrainsItsNetworkOnItsData) {
  auto environment = mpirun_environment(directory);
  environment["CUDA_VISIBLE_DEVICES"] = "";
  const std::string out = (directory.path() / "run").string();
  const Arguments flags = {program("custom_program"),
                           "--model",
                           "gated",
                           "--dataset",
                           "stripes",
                           "--epochs",
                           "2",
                           "--batch-size",
                           "64",
                           "--out",
                           out};
  const ProcessResult alone = run_program(flags, {.environment = environment});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr("best so far after step 94: ")) << "the callback";
  EXPECT_THAT(alone.out, HasSubstr("predict with   custom_program predict --checkpoint " + out));
  std::smatch match;
  ASSERT_TRUE(std::regex_search(alone.out, match, std::regex("test accuracy  ([0-9.]+)%"))) << alone.out;
  EXPECT_GE(std::stod(match[1]), 90);

  const ProcessResult evaluation =
      run_program({program("custom_program"), "evaluate", "--checkpoint", out}, {.environment = environment});
  EXPECT_EQ(evaluation.exit_code, 0) << evaluation.err;
  EXPECT_THAT(evaluation.out, HasSubstr(match[1].str() + "%"));
  EXPECT_THAT(evaluation.out, HasSubstr("diagonal"));
  const std::string onnx = (directory.path() / "gated.onnx").string();
  const ProcessResult exported =
      run_program({program("custom_program"), "export", "--checkpoint", out, "--onnx", onnx},
                  {.environment = environment});
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("images [N, 1, 16, 16]"));
  EXPECT_TRUE(std::filesystem::exists(onnx));

  Arguments ranks = {CONVOY_MPIRUN, "-n", "2"};
  ranks.insert(ranks.end(), flags.begin(), flags.end());
  ranks.back() = (directory.path() / "ranks").string();
  const ProcessResult together = run_program(ranks, {.environment = environment});
  EXPECT_EQ(together.exit_code, 0) << together.err;
  ASSERT_TRUE(std::regex_search(together.out, match, std::regex("test accuracy  ([0-9.]+)%")));
  EXPECT_GE(std::stod(match[1]), 90);
}

TEST_F(Examples, CallbacksFollowATrainingLoop) {
  const std::string out = (directory.path() / "run").string();
  const ProcessResult result =
      run_program({program("callbacks"), (directory.path() / "absent").string(), "2", out},
                  {.environment = {{"CUDA_VISIBLE_DEVICES", ""}, {"OMP_NUM_THREADS", "1"}}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("step 40: loss "));
  for (const char* epoch : {"epoch 1: ", "epoch 2: "})
    for (const char* line : {"[0-9.]+ s, [0-9.]+ ms per step, [0-9]+ samples/s\n",
                             "training accuracy [0-9.]+%\n", "test accuracy [0-9.]+%"})
      EXPECT_TRUE(std::regex_search(result.out, std::regex(std::string(epoch) + line))) << result.out;
  EXPECT_THAT(result.out, HasSubstr("checkpoint of step 40 in " + out));
  EXPECT_TRUE(std::regex_search(result.out, std::regex("epoch 1: test accuracy [0-9.]+% \\(best\\)\n")));
  EXPECT_EQ(read_text(directory.path() / "run/checkpoints/LATEST"), "step_000040\n");
  EXPECT_THAT(read_text(directory.path() / "run/checkpoints/BEST"), ::testing::StartsWith("step_0000"));
  const ProcessResult help = run_program({program("callbacks"), "--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("usage: callbacks [directory, default data/mnist]"));
  EXPECT_EQ(run_program({program("callbacks"), "absent", "none"}).exit_code, 2);
}

TEST_F(Examples, CustomProgramListsItsNetworkAndItsData) {
  const ProcessResult help = run_program({program("custom_program"), "--help"});
  EXPECT_THAT(help.out, HasSubstr(", gated\n"));
  EXPECT_THAT(help.out, HasSubstr("shapes, stripes"));
  const ProcessResult error = run_program({program("custom_program"), "--model", "gatet"});
  EXPECT_EQ(error.exit_code, 2);
  EXPECT_THAT(error.err, HasSubstr("custom_program: error: "));
  EXPECT_THAT(error.err, HasSubstr("'gated'"));
  const ProcessResult predict = run_program({program("custom_program"), "predict", "--top", "x"});
  EXPECT_EQ(predict.exit_code, 2);
  EXPECT_THAT(predict.err, HasSubstr("custom_program predict: error: "));
}

TEST_F(Examples, FineTuningContinuesWithATrainedNetwork) {
  const std::map<std::string, std::string> environment = {{"CUDA_VISIBLE_DEVICES", ""}};
  const std::string run = (directory.path() / "run").string(),
                    images = (directory.path() / "colors").string();
  write_color_directories(images);
  const ProcessResult trained =
      run_program({program("convoy-train"), "--model", "resnet20", "--dataset", "shapes", "--batch-size",
                   "32", "--max-steps", "2", "--out", run},
                  {.environment = environment});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const ProcessResult tuned =
      run_program({program("fine_tuning"), run, images, "8"}, {.environment = environment});
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  // 21 convolutions and batch norms of 4 tensors each, with 2 shortcuts, without the last layer.
  EXPECT_THAT(tuned.out, HasSubstr("105 tensors from " + run));
  EXPECT_THAT(tuned.out, HasSubstr("36 training and 36 test images, 3 classes"));
  std::smatch match;
  ASSERT_TRUE(std::regex_search(tuned.out, match, std::regex("epoch 8: test accuracy ([0-9.]+)%")))
      << tuned.out;
  EXPECT_GE(std::stod(match[1]), 90);

  EXPECT_EQ(
      run_program({program("fine_tuning"), "none", images, "1"}, {.environment = environment}).exit_code, 0);
  const ProcessResult missing = run_program({program("fine_tuning"), images, images});
  EXPECT_EQ(missing.exit_code, 5);
  EXPECT_THAT(missing.err, HasSubstr("found no checkpoint of a training"));
}

TEST_F(Examples, AutoencoderWritesReconstructions) {
  const ProcessResult result =
      run_program({program("autoencoder"), (directory.path() / "absent").string(), "100"},
                  {.environment = {{"CUDA_VISIBLE_DEVICES", ""}}, .directory = directory.path().string()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("ConvTranspose2d 32 -> 3, 4x4 stride 2 padding 1"));
  std::smatch match;
  ASSERT_TRUE(std::regex_search(result.out, match, std::regex("test: mean squared error ([0-9.]+)")))
      << result.out;
  EXPECT_LT(std::stod(match[1]), 0.04) << "that of an untrained network is 0.1";
  EXPECT_THAT(read_text(directory.path() / "autoencoder.png"), ::testing::StartsWith("\x89PNG"));
}

TEST_F(Examples, CharModelLearnsAText) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "the quick brown fox jumps over the lazy dog. ";
  const std::filesystem::path file = directory.path() / "text";
  std::ofstream(file) << text;
  const ProcessResult result = run_program({program("char_model"), file.string(), "100"},
                                           {.environment = {{"CUDA_VISIBLE_DEVICES", ""}}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::smatch match;
  ASSERT_TRUE(std::regex_search(result.out, match, std::regex("([0-9.]+) bits per byte on the last tenth")));
  EXPECT_LT(std::stod(match[1]), 0.5);
  EXPECT_THAT(result.out, HasSubstr("lazy dog. the quick brown"));
  EXPECT_EQ(run_program({program("char_model"), "/dev/null"}).exit_code, 2);
}

TEST_F(Examples, VisionTransformerTrains) {
  const std::string out = (directory.path() / "run").string();
  Arguments flags = {program("vision_transformer"),
                     "--model",
                     "vit",
                     "--dataset",
                     "shapes",
                     "--optimizer",
                     "adamw",
                     "--batch-size",
                     "16",
                     "--max-steps",
                     "3",
                     "--image-size",
                     "8",
                     "--out",
                     out};
  const ProcessResult result = run_program(flags, {.environment = {{"CUDA_VISIBLE_DEVICES", ""}}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("vit, 801418 parameters"));
  flags.insert(flags.end(), {"--summary"});
  EXPECT_THAT(run_program(flags).out, HasSubstr("layers.3.self_attn  MultiheadAttention 128, 4 heads"));
}

TEST_F(Examples, TrainOnTwoRanks) {
  Arguments arguments = {CONVOY_MPIRUN, "-n", "2"};
  for (const std::string& argument : command("minimal_cifar10_ranks")) arguments.push_back(argument);
  const ProcessResult result = run(arguments);
  EXPECT_THAT(result.out, HasSubstr("world size 2"));
  EXPECT_NEAR(first_loss(result), std::log(10), 0.7) << "an untrained network guesses";
}

}  // namespace
}  // namespace convoy::testing
