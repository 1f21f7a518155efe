// Short trainings that must learn: on generated shapes everywhere, on real data where CONVOY_DATA names its
// folder.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

/// Trains with the program's own recipe and returns the accuracy on the test images.
double accuracy_of(const Workshop& workshop, const Arguments& arguments) {
  Arguments all = {program("convoy-train"), "--out", workshop.path("run").string(), "--workers", "1"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  Process process(all);
  const ProcessResult run = process.wait(std::chrono::seconds(900));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  return run.exit_code == 0 ? workshop.result("run")["test_accuracy"].get<double>() : 0;
}

class RealData : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("CONVOY_DATA");
    if (folder == nullptr || *folder == '\0')
      GTEST_SKIP() << "needs CONVOY_DATA, a folder with cifar10/ and mnist/";
  }
  const Workshop workshop;
};

TEST(GeneratedShapes, LeNetLearnsThem) {
  // A tenth by chance; the recipe's ten epochs of 10,000 images give 93 %.
  EXPECT_GE(accuracy_of(Workshop(), {"--model", "lenet", "--dataset", "shapes"}), 0.8);
}

TEST(GeneratedShapes, LeNetLearnsThemInBf16) {
  EXPECT_GE(accuracy_of(Workshop(), {"--model", "lenet", "--dataset", "shapes", "--precision", "bf16"}), 0.8);
}

TEST_F(RealData, LeNetReadsDigits) {
  EXPECT_GE(accuracy_of(workshop, {"--model", "lenet", "--dataset", "mnist", "--epochs", "1"}), 0.96);
}

TEST_F(RealData, ResNet20TellsThePicturesOfCifar10) {
  EXPECT_GE(accuracy_of(workshop, {"--epochs", "1"}), 0.4);  // the default: ResNet-20 on CIFAR-10
}

}  // namespace
}  // namespace convoy::testing
