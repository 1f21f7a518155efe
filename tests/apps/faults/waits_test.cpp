// Tests of waits outside of a step (comm/core/waits.h): each ends at its limit, and names what it was for.
#include "convoy/comm/core/waits.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <thread>

#include "tests/apps/faults/rank_job.h"
#include "tests/apps/launched_training.h"
#include "tests/testing/source_tree/source_path.h"
#include "tests/testing/support/free_port.h"

namespace convoy::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// The table of docs/reliability.md has the names and the limits of the code, in the same order.
TEST(Waits, AreThoseOfTheDocumentation) {
  std::istringstream text(read_text(source_path("docs/reliability.md")));
  std::string line;
  while (std::getline(text, line) && !line.starts_with("| name | wait of |")) continue;
  std::getline(text, line);  // the line below the head
  for (const dist::WaitRow& row : dist::kWaits) {
    ASSERT_TRUE(std::getline(text, line)) << "no row of " << row.name;
    EXPECT_TRUE(line.starts_with(fmt::format("| `{}` |", row.name))) << line;
    const std::string limit = fmt::format(" ({:g} s) |", row.seconds);
    EXPECT_EQ(line.find(row.seconds > 0 ? limit : " s) |") != std::string::npos, row.seconds > 0) << line;
  }
  EXPECT_TRUE(std::getline(text, line) && line.empty()) << line << ": found no such row in the code";
}

/// Each row is the limit of some code.
TEST(Waits, AreNamedWhereTheyAre) {
  std::string code;
  for (const char* directory : {"comm", "apps"})
    for (const auto& entry : fs::recursive_directory_iterator(source_path(directory)))
      if (entry.path().extension() == ".cpp" ||
          (entry.path().extension() == ".h" && entry.path().filename() != "waits.h"))
        code += read_text(entry.path());
  for (const dist::WaitRow& row : dist::kWaits) {
    EXPECT_THAT(code, HasSubstr(fmt::format("Wait::{}", row.name))) << "no code waits so";
    EXPECT_EQ(&dist::row_of(row.wait), &row);
  }
}

/// Trainings with system calls that fail (preload.cpp).
class WaitFaults : public RankJob {
 protected:
  WaitFaults() { fs::create_directory(faults); }

  Environment preloaded() const {
    return {{"LD_PRELOAD", CONVOY_FAULT_PRELOAD}, {"CONVOY_TEST_FAULTS", faults.string()}};
  }
  void plant(const std::string& fault) const { std::ofstream(faults / fault) << "1"; }
  void start_preloaded(int ranks, const Arguments& flags) {
    const int port = free_port();
    for (int rank = 0; rank < ranks; ++rank)
      start_rank(rank, ranks, port, workshop.train_arguments("run", flags), {.environment = preloaded()});
  }
  /// Expects that all processes except `but` end with code 4 within `limit` seconds, and that they name
  /// `culprit`.
  void expect_end(double limit, const std::string& culprit, int but = -1) {
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<ProcessResult> results = wait(but);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(took.count(), limit);
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      if (static_cast<int>(rank) == but) continue;
      EXPECT_EQ(results[rank].exit_code, 4) << results[rank].err;
      EXPECT_THAT(results[rank].err, HasSubstr(culprit));
    }
  }

  const fs::path faults = workshop.path("faults");
};

/// The running statistics of batch norms are summed within a save, so a stop is often in the middle of a
/// collective of it.
TEST_F(WaitFaults, ARankThatIsStoppedWhileCheckpointsAreSavedEndsTheOthers) {
  std::mt19937 random(1);
  for (int i = 0; i < 4; ++i) {
    processes.clear();
    fs::remove_all(workshop.path("run"));
    start(2, "shm",
          {"--model", "resnet20", "--image-size", "8", "--batch-size", "2", "--save-every", "1",
           "--eval-every", "0", "--max-steps", "100000", "--comm-timeout", "3", "--comm-warning", "2"});
    wait_until_step(3);
    std::this_thread::sleep_for(milliseconds(random() % 100));
    kill(id_of(1), SIGSTOP);
    expect_end(3 + 2 + 3, "is stopped by a signal", 1);
    kill(id_of(1), SIGKILL);
    processes[1]->wait();
  }
}

TEST_F(WaitFaults, AFileSystemThatHangsEndsAllRanks) {
  start_preloaded(3, {"--save-every", "20", "--eval-every", "0", "--max-steps", "100000", "--comm-timeout",
                      "3", "--io-timeout", "4"});
  wait_until_step(30);
  plant("fsync-hangs-0");
  // Rank 0 itself exits by its control thread. The verdict has the function in which it waits.
  expect_end(4 + 3 + 5, "; its thread: ");
  fs::remove(faults / "fsync-hangs-0");
}

TEST_F(WaitFaults, AFileSystemThatHangsDoesNotWithstandAStopSignal) {
  start_preloaded(
      3, {"--save-every", "20", "--eval-every", "0", "--max-steps", "100000", "--comm-timeout", "3"});
  wait_until_step(30);
  plant("fsync-hangs-0");
  std::this_thread::sleep_for(seconds(4));  // longer than the timeout: without a signal they wait
  for (const auto& process : processes) EXPECT_TRUE(process->running());
  for (const auto& process : processes) process->send(SIGTERM);
  expect_end(3 + 3 + 5, "rank 0 on ");
  fs::remove(faults / "fsync-hangs-0");
}

TEST_F(WaitFaults, ARankThatDoesNotCallMpiInitIsNamed) {
  std::string train;
  for (const std::string& word : workshop.train_arguments("run", {"--comm-timeout", "4"}))
    train += word + " ";
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult result = run_by_mpi(
      3, {"/bin/sh", "-c", "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then exec sleep 60; fi; exec " + train});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.err, HasSubstr("MPI_Init has not returned after 4 s: local rank 1 of "));
}

TEST_F(WaitFaults, ARankThatDoesNotReturnFromMpiFinalizeEndsTheOthers) {
  plant("finalize-hangs-1");
  const auto begin = std::chrono::steady_clock::now();
  Arguments command = {"/usr/bin/env"};
  for (const auto& [name, value] : preloaded()) command.push_back(name + "=" + value);
  for (const std::string& word : workshop.train_arguments("run", {"--max-steps", "2", "--comm-timeout", "4"}))
    command.push_back(word);
  const ProcessResult result = run_by_mpi(2, command);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(20));
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.err, HasSubstr("MPI_Finalize has not returned after 4 s: "));
}

TEST_F(WaitFaults, RanksThatAreSuspendedTogetherGoOn) {
  for (const char* comm : {"shm", "mpi"}) {
    processes.clear();
    fs::remove_all(workshop.path("run"));
    start(3, comm, {"--epochs", "60", "--eval-every", "0", "--comm-timeout", "3"});
    wait_until_step(5);
    const bool by_mpi = processes.size() == 1;  // Open MPI stops its ranks
    for (const auto& process : processes) process->send(by_mpi ? SIGTSTP : SIGSTOP);
    std::this_thread::sleep_for(seconds(6));
    for (const auto& process : processes) process->send(SIGCONT);
    for (const ProcessResult& result : wait()) EXPECT_EQ(result.exit_code, 0) << comm << result.err;
  }
}

/// Trainings under convoy-launch, whose ranks have failing system calls.
class LaunchedFaults : public WaitFaults {
 protected:
  ProcessResult run(const Arguments& flags, const std::string& fault, bool kills) {
    Process job(
        launch(flags, workshop.train_arguments("run", {"--epochs", "60", "--eval-every", "0", "--save-every",
                                                       "1000000", "--comm-timeout", "20"})),
        {.environment = preloaded()});
    if (!kills) plant(fault);
    wait_for_step(workshop, "run", 50);
    if (kills) {
      plant(fault);
      for (const pid_t rank : find_processes("RANK=3", workshop.path("run"))) kill(rank, SIGKILL);
    }
    return job.wait();
  }
};

/// A second failure while the ranks form a new group: the port of the group is in use, or a rank dies.
TEST_F(LaunchedFaults, RanksFormAnotherGroupIfOneFails) {
  const Arguments flags = {"--ranks", "4", "--max-restarts", "5", "--min-ranks", "2", "--grace", "6"};
  for (const char* fault : {"bind-fails", "connect-kills"}) {
    fs::remove_all(workshop.path("run"));
    const ProcessResult result = run(flags, fault, /*kills=*/true);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_FALSE(fs::exists(faults / fault));
    EXPECT_THAT(result.err, HasSubstr("waiting for another group"));
    EXPECT_THAT(result.err, ::testing::Not(HasSubstr("SIGSEGV")));
    EXPECT_THAT(result.out, HasSubstr(std::string(fault) == "bind-fails" ? "with 3 ranks" : "with 2 ranks"));
    EXPECT_THAT(result.err, ::testing::Not(HasSubstr("restart "))) << "the state in memory was lost";
  }
}

TEST_F(LaunchedFaults, APortThatIsInUseIsNotTheLastAttempt) {
  plant("bind-fails");
  const ProcessResult result = run({"--ranks", "2", "--max-restarts", "1", "--backoff", "0.1"}, "", false);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("of this host is in use"));
  EXPECT_THAT(result.err, HasSubstr("restart 1 of 1"));
}

}  // namespace
}  // namespace convoy::testing
