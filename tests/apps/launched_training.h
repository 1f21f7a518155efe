// Trainings under convoy-launch whose ranks are killed.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/apps/fault_record.h"
#include "tests/apps/rank_runs.h"

namespace convoy::testing {

/// Returns the command that runs a program under convoy-launch.
inline Arguments launch(const Arguments& flags, const Arguments& program_and_flags) {
  Arguments arguments = {program("convoy-launch")};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  arguments.insert(arguments.end(), program_and_flags.begin(), program_and_flags.end());
  return arguments;
}

inline Arguments shell(const std::string& script) { return {"sh", "-c", script}; }

/// Returns the processes whose environment has the variable `setting` ("RANK=2") and whose command line
/// contains `text`.
inline std::vector<pid_t> find_processes(const std::string& setting, const std::string& text) {
  std::vector<pid_t> found;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code gone;
    if (!std::filesystem::exists(entry.path() / "environ", gone)) continue;
    const std::string command = read_text(entry.path() / "cmdline");
    if (command.find(text) == std::string::npos || command.find("convoy-launch") != std::string::npos)
      continue;
    if ((std::string(1, '\0') + read_text(entry.path() / "environ")).find(std::string(1, '\0') + setting) !=
        std::string::npos)
      found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

inline const Arguments kLong = {"--epochs", "60", "--eval-every", "0", "--save-every", "100"};

class ConvoyLaunch : public ::testing::Test {
 protected:
  /// Returns the command of a training in the directory `out` under convoy-launch.
  Arguments training(const std::string& out, const Arguments& flags, const Arguments& more = kLong) const {
    return launch(flags, workshop.train_arguments(out, more));
  }
  void kill_rank(int rank, const std::string& out) const {
    const auto found = find_processes("RANK=" + std::to_string(rank), workshop.path(out));
    ASSERT_EQ(found.size(), 1u);
    kill(found.front(), SIGKILL);
  }
  std::string hash_of(const std::string& out) const { return workshop.result(out)["parameters_hash"]; }

  Workshop workshop;
};

/// A training whose ranks are killed, and continue without a checkpoint.
class Continuation : public ConvoyLaunch {
 protected:
  explicit Continuation(int ranks = 4) : kRanks(ranks) {}

  /// Trains on all ranks and keeps the checkpoint of each step.
  void train_reference() {
    Arguments flags = steps;
    flags.insert(flags.end(), {"--save-every", "1", "--keep-last", "0", "--no-keep-best"});
    ASSERT_EQ(run_program(training("reference", {"--ranks", std::to_string(kRanks)}, flags)).exit_code, 0);
  }
  /// Returns the result of resuming the reference from the checkpoint of `step` on `ranks` ranks.
  std::string resumed_hash(std::int64_t step, int ranks) {
    const std::string out = "from-" + std::to_string(step) + "-on-" + std::to_string(ranks);
    if (!std::filesystem::exists(workshop.path(out))) {
      Arguments flags = steps;
      const std::string number = std::to_string(1000000 + step).substr(1);
      if (step > 0)  // else all are at the begin
        flags.insert(flags.end(),
                     {"--resume", workshop.path("reference") / "checkpoints" / ("step_" + number)});
      const ProcessResult result = run_program(training(out, {"--ranks", std::to_string(ranks)}, flags));
      EXPECT_EQ(result.exit_code, 0) << result.err;
    }
    return hash_of(out);
  }
  /// A second failure: it kills a rank of the new group before the first step of this group.
  struct SecondFailure {
    ProcessOptions options;      // of the job
    std::filesystem::path file;  // the fault, which is planted when the first rank is killed
  };
  /// Kills a rank once the log has `after` steps, and compares the result. Returns the step from which the
  /// others have continued, or nullopt if the job was restarted from a checkpoint.
  std::optional<std::int64_t> kill_and_compare(const std::string& out, int rank, std::size_t after,
                                               const Arguments& more = {},
                                               const std::optional<SecondFailure>& second = {}) {
    Arguments flags = steps;
    flags.insert(flags.end(), more.begin(), more.end());
    Process job(
        training(out, {"--ranks", std::to_string(kRanks), "--max-restarts", "2", "--min-ranks", "2"}, flags),
        second ? second->options : ProcessOptions());
    wait_for_step(workshop, out, after);
    if (second) std::ofstream(second->file) << "1";
    kill_rank(rank, out);
    FaultRecord record(
        fmt::format("one of {} ranks{} is killed under `convoy-launch --min-ranks 2`", kRanks, setting));
    while (job.running() && workshop.events(out, "start").size() < 2)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    record.stop();
    const ProcessResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::vector<Json> starts = workshop.events(out, "start");
    EXPECT_EQ(starts.size(), 2u);
    if (starts.size() != 2) return std::nullopt;
    const std::int64_t step = starts[1]["step"];
    const int remaining = kRanks - (second ? 2 : 1);
    EXPECT_EQ(starts[1]["world_size"], remaining) << result.err;
    EXPECT_EQ(hash_of(out), resumed_hash(step, remaining)) << "continued after step " << step;
    if (second) {
      EXPECT_FALSE(std::filesystem::exists(second->file)) << "there was no second failure";
    }
    if (result.out.find("continuing after step ") == std::string::npos) return std::nullopt;
    if (!HasFailure() && !second)
      record.print(
          "the others go on, with the bytes of a training resumed from that step on the same number of ranks",
          lost);
    return step;
  }

  /// Returns a fault of tests/apps/faults/preload.cpp.
  SecondFailure second_failure(const std::string& fault) const {
    return {.options = {.environment = {{"LD_PRELOAD", CONVOY_FAULT_PRELOAD},
                                        {"CONVOY_TEST_FAULTS", workshop.directory().path().string()}}},
            .file = workshop.path(fault)};
  }

  /// Trains on three ranks, kills two of them one after the other, and expects that the last one completes
  /// the training, whose log has `steps_logged` steps.
  void expect_one_rank_completes(const Arguments& flags, std::size_t steps_logged) {
    Process job(training("run", {"--ranks", "3", "--max-restarts", "5", "--min-ranks", "1"}, flags));
    for (const int rank : {2, 1}) {
      wait_for_step(workshop, "run", rank == 2 ? 100 : 300);
      kill_rank(rank, "run");
    }
    const ProcessResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const char* text : {"with 2 ranks", "with 1 rank\n"})
      EXPECT_NE(result.out.find(text), std::string::npos) << text << result.out;
    EXPECT_EQ(workshop.events("run", "step").size(), steps_logged);
  }

  const int kRanks;
  Arguments steps = {"--epochs", "30", "--eval-every", "0"};
  std::string setting;  // for the record of the fault: " with --zero 1"
  std::string lost = "nothing: the step is repeated";
};

/// ZeRO: each rank has a copy of another rank's shard of the optimizer's state.
class ShardedContinuation : public Continuation {
 protected:
  ShardedContinuation() {
    steps.insert(steps.end(), sharded.begin(), sharded.end());
    setting = " with `--zero 1`";
    lost = "nothing: at most 10 steps are repeated";
  }
  const Arguments sharded = {"--zero", "1", "--optimizer", "adamw", "--lr", "0.001"};
};

}  // namespace convoy::testing
