// Trainings on emulated GPUs under convoy-launch --min-ranks: a rank is killed, and the others continue without a
// checkpoint.
#include <gtest/gtest.h>

#include "tests/apps/launched_training.h"

namespace convoy::testing {
namespace {

class GpuContinuation : public Continuation, public ::testing::WithParamInterface<const char*> {
 protected:
  GpuContinuation() : Continuation(3) {
    write_digits(workshop.path("digits"), 60, 6);
    steps = {"--device",         "cuda", "--batch-size",    "6",      "--epochs", "10",
             "--eval-every",     "0",    "--optimizer",     "adamw",  "--lr",     "0.001",
             "--snapshot-every", "5",    "--deterministic", "--zero", GetParam()};
    setting = std::string(" on GPUs with `--zero ") + GetParam() + "`";
    lost = "nothing: at most --snapshot-every steps are repeated";
  }
};

TEST_P(GpuContinuation, GivesTheResultOfAResumedTraining) {
  train_reference();
  const auto step = kill_and_compare("killed", 1, 42, {"--save-every", "1000000"});
  ASSERT_TRUE(step) << "restarted from a checkpoint";
  EXPECT_GE(*step, 35);
  EXPECT_LE(*step, 60) << "the others have gone on without the killed rank";
  EXPECT_EQ(*step % 5, 0);
}

INSTANTIATE_TEST_SUITE_P(Zero, GpuContinuation, ::testing::Values("0", "2"));

}  // namespace
}  // namespace convoy::testing
