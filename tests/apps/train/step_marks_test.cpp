// The time marks in captured training steps, on an emulated GPU.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "convoy/apps/programs/programs.h"
#include "emulator/runtime/emulator.h"
#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

class StepMarks : public ::testing::Test {
 protected:
  /// Trains LeNet for four steps, of which the third is captured, and returns the marks in its graph.
  std::uint64_t captured_marks(const Arguments& more) {
    Arguments arguments =
        with(workshop.train_arguments("run" + std::to_string(++runs_),
                                      {"--device", "cuda", "--max-steps", "4", "--batch-size", "8"}),
             more);
    std::vector<char*> pointers;
    for (std::string& argument : arguments) pointers.push_back(argument.data());
    const std::uint64_t before = emulator::event_nodes();
    EXPECT_EQ(convoy::run_program(static_cast<int>(pointers.size()), pointers.data()), 0);
    return emulator::event_nodes() - before;
  }
  const Workshop workshop;

 private:
  int runs_ = 0;
};

TEST_F(StepMarks, AreCapturedOnlyForReaders) {
  EXPECT_EQ(captured_marks({}), 0U);
  // The begin, and the ends of forward, backward and the optimizer.
  const Arguments trace = {"--trace", workshop.path("trace.json")};
  EXPECT_EQ(captured_marks(trace), 4U);
  EXPECT_EQ(captured_marks(with(trace, {"--micro-batch-size", "4"})), 7U);
}

}  // namespace
}  // namespace convoy::testing
