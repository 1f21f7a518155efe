// Tests of the example programs without data, for a few steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>

#include "tests/apps/programs.h"
#include "tests/testing/support/mpirun.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Examples : public ::testing::Test {
 protected:
  /// Runs a program with arguments that are separated by spaces, on the CPU. It must succeed.
  ProcessResult run_example(const std::string& name, const std::string& arguments = "",
                            const Arguments& launcher = {}) const {
    Arguments all = launcher;
    all.push_back(program(name));
    std::istringstream words(arguments);
    all.insert(all.end(), std::istream_iterator<std::string>(words), {});
    auto environment = mpirun_environment(directory);
    environment["CUDA_VISIBLE_DEVICES"] = "";
    const ProcessResult result =
        run_program(all, {.environment = environment, .directory = directory.path().string()});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result;
  }
  /// Runs three steps on generated images.
  ProcessResult run_minimal(const std::string& name, const Arguments& launcher = {}) const {
    ProcessResult result = run_example(name, path("absent") + " 3", launcher);
    EXPECT_THAT(result.out, HasSubstr("absent not found: training on generated images"));
    EXPECT_THAT(result.out, HasSubstr("272474 parameters"));
    EXPECT_THAT(result.out, HasSubstr("epoch 1: test accuracy "));
    return result;
  }
  std::string path(const std::string& name) const { return (directory.path() / name).string(); }
  /// Returns the number that `text` has at the group of a regular expression; NaN without a match.
  static double number_in(const std::string& text, const std::string& expression) {
    std::smatch match;
    EXPECT_TRUE(std::regex_search(text, match, std::regex(expression))) << text;
    return match.empty() ? std::nan("") : std::stod(match[1]);
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
  const double loss = first_loss(run_minimal("minimal_cifar10"));
  EXPECT_NEAR(loss, std::log(10), 0.7) << "an untrained network guesses";
  EXPECT_EQ(first_loss(run_minimal("minimal_cifar10_ranks")), loss) << "a single rank";
}

TEST_F(Examples, PrintTheirUsage) {
  for (const std::string name : {"minimal_cifar10", "minimal_cifar10_ranks"}) {
    const ProcessResult help = run_program({program(name), "--help"});
    EXPECT_EQ(help.exit_code, 0) << help.err;
    EXPECT_THAT(help.out, HasSubstr("usage: " + name + " [directory, default data/cifar10]"));
    EXPECT_EQ(run_program({program(name), "--epochs"}).exit_code, 2);
  }
  for (const std::string name : {"callbacks", "custom_op"}) {
    const ProcessResult help = run_program({program(name), "--help"});
    EXPECT_EQ(help.exit_code, 0) << help.err;
    EXPECT_THAT(help.out, StartsWith("usage: " + name + " "));
    EXPECT_EQ(run_program({program(name), "--epochs"}).exit_code, 2) << name;
  }
}

TEST_F(Examples, FirstNetworkLearnsAndWritesItsFiles) {
  EXPECT_GE(number_in(run_example("first_network").out, "([0-9]+) of 2000 test images"), 1200);
  EXPECT_GT(std::filesystem::file_size(path("shapes.safetensors")), 4u * 25578);  // parameters in f32
  EXPECT_GT(std::filesystem::file_size(path("shapes.onnx")), 4u * 25578);
}

TEST_F(Examples, CustomOpHasTheRightGradient) {
  EXPECT_EQ(run_example("custom_op").out,
            "the gradients of softsign are right\nsoftsign(-1) = -0.5000, slope 0.2500\n");
}

TEST_F(Examples, CustomProgramTrainsItsNetworkOnItsData) {
  const std::string out = path("run"), accuracy = "test accuracy  ([0-9.]+)%";
  const std::string flags = "--model gated --dataset stripes --epochs 2 --batch-size 64 --out ";
  const ProcessResult alone = run_example("custom_program", flags + out);
  EXPECT_THAT(alone.out, HasSubstr("best so far after step 94: ")) << "the callback";
  EXPECT_THAT(alone.out, HasSubstr("predict with   custom_program predict --checkpoint " + out));
  std::smatch match;
  ASSERT_TRUE(std::regex_search(alone.out, match, std::regex(accuracy))) << alone.out;
  EXPECT_GE(std::stod(match[1]), 90);

  const ProcessResult evaluation = run_example("custom_program", "evaluate --checkpoint " + out);
  EXPECT_THAT(evaluation.out, HasSubstr(match[1].str() + "%"));
  EXPECT_THAT(evaluation.out, HasSubstr("diagonal"));
  const ProcessResult exported =
      run_example("custom_program", "export --checkpoint " + out + " --onnx " + path("gated.onnx"));
  EXPECT_THAT(exported.out, HasSubstr("images [N, 1, 16, 16]"));
  EXPECT_TRUE(std::filesystem::exists(path("gated.onnx")));

  const ProcessResult together =
      run_example("custom_program", flags + path("ranks"), {CONVOY_MPIRUN, "-n", "2"});
  EXPECT_GE(number_in(together.out, accuracy), 90);
}

TEST_F(Examples, CallbacksFollowATrainingLoop) {
  const ProcessResult result = run_example("callbacks", path("absent") + " 2 " + path("run"));
  EXPECT_THAT(result.out, HasSubstr("step 40: loss "));
  for (const char* epoch : {"epoch 1: ", "epoch 2: "})
    for (const char* line : {"[0-9.]+ s, [0-9.]+ ms per step, [0-9]+ samples/s\n",
                             "training accuracy [0-9.]+%\n", "test accuracy [0-9.]+%"})
      EXPECT_TRUE(std::regex_search(result.out, std::regex(std::string(epoch) + line))) << result.out;
  EXPECT_THAT(result.out, HasSubstr("checkpoint of step 40 in " + path("run")));
  EXPECT_TRUE(std::regex_search(result.out, std::regex("epoch 1: test accuracy [0-9.]+% \\(best\\)\n")));
  EXPECT_EQ(read_text(path("run/checkpoints/LATEST")), "step_000040\n");
  EXPECT_THAT(read_text(path("run/checkpoints/BEST")), StartsWith("step_0000"));
  EXPECT_THAT(run_example("callbacks", "--help").out,
              HasSubstr("usage: callbacks [directory, default data/mnist]"));
  EXPECT_EQ(run_program({program("callbacks"), "absent", "none"}).exit_code, 2);
}

TEST_F(Examples, CustomProgramListsItsNetworkAndItsData) {
  const ProcessResult help = run_example("custom_program", "--help");
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

TEST_F(Examples, VisionTransformerTrains) {
  const std::string flags =
      "--model vit --dataset shapes --optimizer adamw --batch-size 16 --max-steps 3 --image-size 8 --out " +
      path("run");
  EXPECT_THAT(run_example("vision_transformer", flags).out, HasSubstr("vit, 801418 parameters"));
  EXPECT_THAT(run_example("vision_transformer", flags + " --summary").out,
              HasSubstr("layers.3.self_attn  MultiheadAttention 128, 4 heads"));
}

TEST_F(Examples, TrainOnTwoRanks) {
  const ProcessResult result = run_minimal("minimal_cifar10_ranks", {CONVOY_MPIRUN, "-n", "2"});
  EXPECT_THAT(result.out, HasSubstr("world size 2"));
  EXPECT_NEAR(first_loss(result), std::log(10), 0.7) << "an untrained network guesses";
}

}  // namespace
}  // namespace convoy::testing
