// Tests of --devices: the threads of one process train like several processes, and like a single rank.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <utility>

#include "tests/apps/rank_rows.h"
#include "tests/apps/rank_runs.h"
#include "tests/apps/trace_rules.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Arguments joined(Arguments flags, const Arguments& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

/// Replaces a directory by a file, although a program may create the directory again meanwhile.
void replace_by_file(const std::filesystem::path& directory) {
  for (int i = 0; i < 1000; ++i) {
    std::error_code ignored;  // there may be no directory
    std::filesystem::rename(directory, directory.string() + "-moved" + std::to_string(i), ignored);
    const int file = open(directory.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    if (file >= 0) {
      close(file);
      return;
    }
  }
  FAIL() << directory << " was created again each time";
}

class Devices : public ::testing::Test {
 protected:
  static constexpr int kImages = 96, kTestImages = 20;  // three steps per epoch

  Devices() { write_digits(workshop.path("digits"), kImages, kTestImages); }

  Arguments arguments(const std::string& out, const Arguments& more) const {
    return workshop.train_arguments(out, joined({"--devices", "2"}, more));
  }

  Workshop workshop;
};

TEST_F(Devices, TrainLikeASingleRank) {
  expect_training_of_one_process(
      {.ranks = 3, .comm = "thread", .precision = "fp64", .micro_batch = 3, .size = {97, 13}});
}

TEST_F(Devices, MatchProcessesBitForBit) {
  const Arguments flags = {"--epochs",         "1", "--augment", "crop=2", "--deterministic",
                           "--check-replicas", "2"};
  const Outcome expected = train_on(workshop, "processes", 2, "shm", flags);
  const Outcome found = train_on(workshop, "threads", 2, "thread", flags);
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.hash, expected.hash);
  EXPECT_EQ(found.test_loss, expected.test_loss);
  EXPECT_EQ(workshop.result("threads")["world_size"], 2);
  EXPECT_EQ(workshop.events("threads", "start").front()["devices"], (Json{"cpu", "cpu"}));
}

TEST_F(Devices, SynchronizeBatchNorm) {
  write_digits(workshop.path("digits"), 23, 10);
  const Arguments flags = {"--model",     "resnet20", "--image-size", "8", "--batch-size", "5",
                           "--max-steps", "4",        "--epochs",     "0", "--precision",  "fp64",
                           "--sync-bn"};
  const Outcome alone = train_on(workshop, "alone", 1, "", flags);
  const Outcome found = train_on(workshop, "devices", 2, "thread", flags);
  ASSERT_EQ(found.losses.size(), alone.losses.size());
  for (std::size_t step = 0; step < alone.losses.size(); ++step)
    EXPECT_NEAR(found.losses[step], alone.losses[step], 1e-9 * alone.losses[step]) << "step " << step + 1;
}

TEST_F(Devices, PrintOnceAndTraceAllRanks) {
  const std::string trace = workshop.path("trace.json");
  const ProcessResult result =
      run_program(arguments("run", {"--max-steps", "3", "--eval-every", "0", "--trace", trace}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("2 on 1 host, thread; rendezvous: 2 threads of one process"));
  for (const char* once : {"  model  ", "step 3/3", "  parameters  "}) {
    const std::size_t place = result.out.find(once);
    ASSERT_NE(place, std::string::npos) << once << result.out;
    EXPECT_EQ(result.out.find(once, place + 1), std::string::npos) << once << result.out;
  }
  EXPECT_EQ(workshop.events("run", "step").size(), 3U);
  std::set<std::string> processes;
  EXPECT_THAT(problems_of_trace(read_text(trace)), ::testing::IsEmpty());
  const Json timeline = Json::parse(read_text(trace));
  for (const Json& event : timeline["traceEvents"])
    if (event["name"] == "process_name")
      processes.insert(event["args"]["name"].get<std::string>().substr(0, 6));
  EXPECT_THAT(processes, ElementsAre("rank 0", "rank 1"));
}

/// A checkpoint does not depend on how its ranks were started.
TEST_F(Devices, ResumeFromCheckpointsOfOtherLaunches) {
  const Arguments flags = {"--epochs",    "3", "--eval-every", "0",    "--save-every",   "5",
                           "--keep-last", "0", "--precision",  "fp64", "--deterministic"};
  struct Kind {
    int ranks;
    std::string comm;
  };
  const Kind alone{1, ""}, processes{2, "shm"}, threads{2, "thread"};
  const auto name = [](const Kind& kind) { return std::to_string(kind.ranks) + kind.comm; };
  std::map<std::string, Outcome> whole;
  for (const Kind& kind : {alone, processes, threads})
    whole[name(kind)] = train_on(workshop, name(kind), kind.ranks, kind.comm, flags);

  for (const auto& [from, to] : {std::pair(processes, threads), std::pair(threads, processes),
                                 std::pair(alone, threads), std::pair(threads, alone)}) {
    const std::string out = name(from) + "-" + name(to);
    const Arguments resume = {"--resume", workshop.path(name(from)) / "checkpoints/step_000005"};
    const Outcome found = train_on(workshop, out, to.ranks, to.comm, joined(flags, resume));
    const Outcome& expected = whole[name(from)];
    ASSERT_EQ(found.losses.size(), 4U) << out;
    for (std::size_t step = 0; step < 4; ++step)
      EXPECT_NEAR(found.losses[step], expected.losses[5 + step], 1e-9 * expected.losses[5 + step]) << out;
    EXPECT_EQ(found.samples, expected.samples) << out;
    if (from.ranks == to.ranks) {
      EXPECT_EQ(found.hash, expected.hash) << out;
    }
  }
}

/// With a constant rate, an interrupted run has the same prefix as an uninterrupted one of any length.
class InterruptedDevices : public Devices {
 protected:
  Arguments to_step(std::size_t step) const { return joined(kFlags, {"--max-steps", std::to_string(step)}); }
  std::unique_ptr<Process> start_endless() const {
    return std::make_unique<Process>(arguments("run", to_step(1000000)));
  }
  /// Resumes the run and compares it bit by bit with an uninterrupted one.
  void expect_equal_after_resume() const {
    const Arguments flags = to_step(steps_of(workshop, "run") + 3);
    const Outcome resumed = train_on(workshop, "run", 2, "thread", joined(flags, {"--resume", "auto"}));
    const Outcome whole = train_on(workshop, "whole", 2, "thread", flags);
    EXPECT_EQ(resumed.losses, whole.losses);
    EXPECT_EQ(resumed.hash, whole.hash);
  }

  const Arguments kFlags = {"--schedule", "constant", "--eval-every", "0", "--deterministic",
                            "--augment",  "crop=2",   "--save-every", "4"};
};

TEST_F(InterruptedDevices, ResumeBitForBitAfterKill) {
  const std::unique_ptr<Process> process = start_endless();
  wait_for_step(workshop, "run", 7);
  process->send(SIGKILL);
  process->wait();
  expect_equal_after_resume();
}

TEST_F(InterruptedDevices, SaveOnceOnStopSignal) {
  const std::unique_ptr<Process> process = start_endless();
  wait_for_step(workshop, "run", 3);
  process->send(SIGTERM);
  const ProcessResult stopped = process->wait();
  ASSERT_EQ(stopped.exit_code, 128 + SIGTERM) << stopped.out << stopped.err;
  EXPECT_EQ(stopped.err, "");
  const std::size_t place = stopped.out.find("checkpoint saved");
  ASSERT_NE(place, std::string::npos) << stopped.out;
  EXPECT_EQ(stopped.out.find("checkpoint saved", place + 1), std::string::npos) << stopped.out;
  expect_equal_after_resume();
}

/// A failure on one rank only: rank 0 writes the files.
TEST_F(Devices, EachRankReportsTheFailureOfOneRank) {
  Process process(arguments("run", {"--epochs", "1000", "--save-every", "2", "--eval-every", "0"}));
  wait_for_step(workshop, "run", 3);
  replace_by_file(workshop.path("run"));
  const ProcessResult result = process.wait();
  EXPECT_EQ(result.exit_code, 8) << result.err;
  EXPECT_THAT(result.err, StartsWith("convoy-train: error: [rank 0] "));
  EXPECT_THAT(result.err, HasSubstr("\nconvoy-train: error: [rank 1] "));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 2) << result.err;
}

TEST_F(Devices, EachRankReportsANonFiniteLoss) {
  const ProcessResult result = run_program(arguments("run", {"--lr", "1e30", "--schedule", "constant"}));
  EXPECT_EQ(result.exit_code, 6) << result.err;
  EXPECT_THAT(result.err, HasSubstr("convoy-train: error: [rank 0] "));
  EXPECT_THAT(result.err, HasSubstr("convoy-train: error: [rank 1] "));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 2) << result.err;
}

TEST_F(Devices, RefuseSeveralProcesses) {
  const ProcessResult result =
      run_program(arguments("run", {}),
                  {.environment = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}}});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--devices 2: found one of 2 processes (RANK and WORLD_SIZE)"));
  const ProcessResult by_mpirun = run_by_mpi(2, arguments("run", {}));
  EXPECT_EQ(by_mpirun.exit_code, 2);
  EXPECT_THAT(by_mpirun.err, HasSubstr("--devices 2: found one of 2 processes (OMPI_COMM_WORLD_*)"));
  EXPECT_FALSE(std::filesystem::exists(workshop.path("run")));
}

TEST_F(Devices, EvaluateEachImageOnce) {
  ASSERT_EQ(run_program(arguments("run", {"--max-steps", "4", "--precision", "fp64"})).exit_code, 0);
  Json found[2];
  for (const int devices : {1, 3}) {
    const std::string json = workshop.path("evaluation" + std::to_string(devices));
    const ProcessResult result = workshop.run(
        "convoy-evaluate", {"--checkpoint", workshop.path("run"), "--device", "cpu", "--batch-size", "7",
                            "--devices", std::to_string(devices), "--json", json});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    found[devices / 3] = Json::parse(read_text(json));
  }
  EXPECT_EQ(found[1]["count"], kTestImages);
  EXPECT_EQ(found[1]["confusion"], found[0]["confusion"]);
  EXPECT_NEAR(found[1]["loss"].get<double>(), found[0]["loss"].get<double>(), 1e-12);
}

}  // namespace
}  // namespace convoy::testing
