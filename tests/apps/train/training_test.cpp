// Short trainings that reach a minimum accuracy on generated shapes and, if CONVOY_DATA is set, on real data.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

/// Trains with the default recipe and returns the test accuracy.
double accuracy_of(const Workshop& workshop, const Arguments& arguments) {
  Process process(
      with({program("convoy-train"), "--out", workshop.path("run").string(), "--workers", "1"}, arguments));
  const ProcessResult run = process.wait(std::chrono::seconds(900));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return run.exit_code == 0 ? workshop.result("run")["test_accuracy"].get<double>() : 0;
}

class RealData : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* directory = std::getenv("CONVOY_DATA");
    if (directory == nullptr || *directory == '\0')
      GTEST_SKIP() << "needs CONVOY_DATA, a directory with cifar10/ and mnist/";
  }
  const Workshop workshop;
};

TEST(GeneratedShapes, LeNetLearns) {
  // Chance is 10 %; the recipe's ten epochs of 10,000 images reach 93 %.
  EXPECT_GE(accuracy_of(Workshop(), {"--model", "lenet", "--dataset", "shapes"}), 0.8);
}

TEST(GeneratedShapes, LeNetLearnsInBf16) {
  EXPECT_GE(accuracy_of(Workshop(), {"--model", "lenet", "--dataset", "shapes", "--precision", "bf16"}), 0.8);
}

TEST(GeneratedShapes, SpeedrunLearns) {
  // One epoch with the default recipe reaches 84 %.
  EXPECT_GE(accuracy_of(Workshop(), {"--model", "speedrun-small", "--dataset", "shapes", "--epochs", "1"}),
            0.6);
}

TEST(GeneratedShapes, LeNetLearnsWithMuon) {
  // Four epochs reach 89 %.
  EXPECT_GE(accuracy_of(Workshop(),
                        {"--model", "lenet", "--dataset", "shapes", "--optimizer", "muon", "--epochs", "4"}),
            0.8);
}

TEST_F(RealData, LeNetLearnsMnist) {
  EXPECT_GE(accuracy_of(workshop, {"--model", "lenet", "--dataset", "mnist", "--epochs", "1"}), 0.96);
}

TEST_F(RealData, ResNet20LearnsCifar10) {
  // The default, ResNet-20 on CIFAR-10, with a third of an epoch. Chance is 10 %; these steps reached 42 %.
  EXPECT_GE(accuracy_of(workshop, {"--max-steps", "130"}), 0.35);
}

}  // namespace
}  // namespace convoy::testing
