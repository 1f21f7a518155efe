// Tests of errors of one rank: exceptions, lack of memory, numbers that are not finite, and a flipped bit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tuple>

#include "convoy/kernels/runtime/device.h"
#include "tests/apps/faults/rank_job.h"
#include "tests/testing/support/free_port.h"

// Defined where a sanitizer's runtime is linked, null elsewhere.
extern "C" __attribute__((weak)) void __asan_init();

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class FaultyRanks : public RankJob {
 protected:
  /// Starts faulty_training.cpp on several ranks, with the fault on one of them.
  void start_with(const std::string& fault, int faulty, int ranks, const Arguments& more = {}) {
    const int port = free_port();
    Arguments flags = {"--model", "faulty",       "--max-steps", "10",       "--comm-timeout",
                       "100",     "--save-every", "2",           "--epochs", "0"};
    flags.insert(flags.end(), more.begin(), more.end());
    Arguments command = workshop.train_arguments("run", flags);
    command.front() = program("convoy_faulty_training");
    for (int rank = 0; rank < ranks; ++rank)
      start_rank(rank, ranks, port, command,
                 {.environment = {{"CONVOY_TEST_FAULT", rank == faulty ? fault : "none"}}});
  }
};

/// A fault, and how the process of its rank ends.
struct Fault {
  const char* name;
  const char* kind;  // of faulty_training.cpp
  int exit_code;
  const char* text;
  const char* phase;
  bool limits_memory = false;
  friend std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }
};

constexpr Fault kFaults[] = {
    {"Forward", "forward", 3, "the images of step 5 are damaged", "forward pass"},
    {"Backward", "backward", 3, "the gradients of step 5 are damaged", "backward pass"},
    {"Optimizer", "optimizer", 2, "build the optimizer after moving the model", "optimizer"},
    {"MemoryInForward", "memory in forward", 7, "out of memory", "forward pass", true},
    {"MemoryInEvaluation", "memory in evaluation", 7, "out of memory", "evaluation", true},
};

class Errors : public FaultyRanks, public ::testing::WithParamInterface<std::tuple<Fault, int>> {};

INSTANTIATE_TEST_SUITE_P(All, Errors,
                         ::testing::Combine(::testing::ValuesIn(kFaults), ::testing::ValuesIn(world_sizes())),
                         [](const auto& test) {
                           return fmt::format("{}Of{}", std::get<0>(test.param).name,
                                              std::get<1>(test.param));
                         });

TEST_P(Errors, AreReportedByEachRankAsTheFirstCause) {
  const auto& [fault, ranks] = GetParam();
  if (fault.limits_memory && __asan_init != nullptr)
    GTEST_SKIP() << "needs a build without sanitizers, which need unlimited addresses";
  for (const int faulty : {0, ranks - 1}) {
    processes.clear();
    std::filesystem::remove_all(workshop.path("run"));
    const bool is_evaluation = std::string(fault.phase) == "evaluation";
    // An epoch has 10 steps of 32 images, or 5 of 64: the evaluation after it follows step 5.
    start_with(fault.kind, faulty, ranks,
               is_evaluation ? Arguments{"--batch-size", "64", "--eval-every", "1"} : Arguments{});
    const std::string cause = fmt::format("rank {}: ", faulty);
    const std::vector<ProcessResult> results = wait();
    for (int rank = 0; rank < ranks; ++rank) {
      const ProcessResult& result = results[static_cast<std::size_t>(rank)];
      SCOPED_TRACE(fmt::format("rank {}, the fault is on rank {}", rank, faulty));
      if (rank == faulty) {
        EXPECT_EQ(result.exit_code, fault.exit_code) << result.err;
        EXPECT_THAT(result.err,
                    AllOf(HasSubstr(fmt::format("error: [rank {}] ", rank)), HasSubstr(fault.text)));
      } else {
        EXPECT_EQ(result.exit_code, 4) << result.err;
        EXPECT_THAT(result.err, AllOf(HasSubstr(fmt::format("error: [rank {}] ", rank)), HasSubstr(cause),
                                      HasSubstr(fault.text), HasSubstr(fault.phase)));
      }
    }
  }
}

class OneFaultyRank : public FaultyRanks, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OneFaultyRank, ::testing::ValuesIn(world_sizes()),
                         ::testing::PrintToStringParamName());

/// Only the last rank has a damaged image in its copy of the data.
TEST_P(OneFaultyRank, ReportsADamagedImage) {
  const int ranks = GetParam();
  for (const char* copy : {"colors", "damaged"}) write_color_directories(workshop.path(copy));
  std::ofstream(workshop.path("damaged") / "train" / "red" / "image105.bmp") << "BM, but nothing more";
  const int port = free_port();
  for (int rank = 0; rank < ranks; ++rank)
    start_rank(rank, ranks, port,
               {program("convoy-train"), "--model", "resnet20", "--dataset", "folder", "--data",
                workshop.path(rank < ranks - 1 ? "colors" : "damaged"), "--batch-size", "12", "--max-steps",
                "2", "--device", "cpu", "--out", workshop.path("run")});
  const std::vector<ProcessResult> results = wait();
  for (int rank = 0; rank < ranks; ++rank) {
    const ProcessResult& result = results[static_cast<std::size_t>(rank)];
    const bool is_faulty = rank == ranks - 1;
    EXPECT_EQ(result.exit_code, is_faulty ? 3 : 4) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr(fmt::format("error: [rank {}] ", rank)), HasSubstr("image105.bmp"),
                      HasSubstr(is_faulty ? "" : fmt::format("rank {}: ", ranks - 1))));
  }
}

/// The sum of the gradients makes the parameters of all ranks NaN, and the loss of the next step.
TEST_P(OneFaultyRank, WithANanGradientInFp32EndsAllAtTheSameStep) {
  start_with("NaN gradient", GetParam() - 1, GetParam());
  for (const ProcessResult& result : wait()) {
    EXPECT_EQ(result.exit_code, 6) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("the loss of step 6 is"), HasSubstr("the checkpoint of step 4 is intact")));
  }
}

TEST_P(OneFaultyRank, WithAFlippedBitIsNamedByCheckReplicas) {
  start_with("flipped bit", GetParam() - 1, GetParam(), {"--check-replicas", "1"});
  for (const ProcessResult& result : wait()) {
    EXPECT_EQ(result.exit_code, 4) << result.err;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("after step 5"), HasSubstr(fmt::format("rank {}", GetParam() - 1)),
                      HasSubstr("first.weight")));
  }
}

/// The loss scaler sees the sum of the gradients, so all ranks skip the step. --check-replicas compares them.
TEST_P(OneFaultyRank, WithANanGradientInFp16MakesAllSkipTheStep) {
  const int ranks = GetParam();
  if (cuda_availability().count < ranks) GTEST_SKIP() << "needs " << ranks << " GPUs";
  start_with("NaN gradient", ranks - 1, ranks,
             {"--device", "cuda", "--precision", "fp16", "--no-cuda-graph", "--check-replicas", "1"});
  for (const ProcessResult& result : wait()) EXPECT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> steps = workshop.events("run", "step");
  ASSERT_EQ(steps.size(), 10U);
  EXPECT_EQ(steps[3]["skipped"], 0);
  EXPECT_EQ(steps[9]["skipped"], 1);
  EXPECT_LT(steps[9]["scale"].get<double>(), steps[3]["scale"].get<double>());
}

}  // namespace
}  // namespace convoy::testing
