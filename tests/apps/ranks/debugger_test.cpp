// Tests of --wait-debugger: one rank waits for a debugger, and the other ranks wait for it beyond
// --comm-timeout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>

#include "tests/apps/rank_runs.h"
#include "tests/testing/support/free_port.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

/// Returns what a running process has written to stderr so far.
std::string errors_of(const Process& process) {
  namespace fs = std::filesystem;
  const fs::path entry = "/proc/" + std::to_string(process.id());
  // Between fork and exec, stderr is still that of the test, which may be a pipe.
  std::error_code ignored;
  if (fs::read_symlink(entry / "exe", ignored) == fs::read_symlink("/proc/self/exe")) return "";
  return read_text(entry / "fd/2");
}

void wait_for_text(const Process& process, const std::string& text) {
  for (int i = 0; i < 12000 && errors_of(process).find(text) == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_THAT(errors_of(process), HasSubstr(text));
}

/// Two ranks, of which rank 1 waits for a debugger.
class WaitDebugger : public ::testing::Test {
 protected:
  void start(const Arguments& program) {
    const int port = free_port();
    for (int rank = 0; rank < 2; ++rank) {
      Environment environment = rank_environment(rank, 2, port);
      // The leak check is a tracer as well, and a process can have only one.
      environment["ASAN_OPTIONS"] = "detect_leaks=0";
      ranks.push_back(std::make_unique<Process>(program, ProcessOptions{.environment = environment}));
    }
    wait_for_text(*ranks[1], "waits for a debugger: gdb -p " + std::to_string(ranks[1]->id()) + "\n");
  }
  void expect_both_end_well() {
    for (const auto& rank : ranks) {
      const ProcessResult result = rank->wait();
      EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    }
  }

  Workshop workshop;
  std::vector<std::unique_ptr<Process>> ranks;
};

TEST_F(WaitDebugger, ContinuesWhenADebuggerIsAttached) {
  constexpr int kTimeout = 6;  // seconds; also the timeout of the rendezvous
  start(workshop.train_arguments(
      "run", {"--wait-debugger", "1", "--comm-timeout", std::to_string(kTimeout), "--max-steps", "2"}));
  // Longer than the timeout of other collectives.
  std::this_thread::sleep_for(std::chrono::seconds(kTimeout + 1));
  ASSERT_TRUE(ranks[0]->running()) << "rank 0 has not waited";
  ASSERT_TRUE(ranks[1]->running());

  const pid_t waiting = ranks[1]->id();
  ASSERT_EQ(ptrace(PTRACE_SEIZE, waiting, nullptr, nullptr), 0);
  wait_for_text(*ranks[1], "continues with process " + std::to_string(getpid()) + " attached");
  ASSERT_EQ(ptrace(PTRACE_INTERRUPT, waiting, nullptr, nullptr), 0);
  int status = 0;
  ASSERT_EQ(waitpid(waiting, &status, __WALL), waiting);
  ASSERT_TRUE(WIFSTOPPED(status));
  ASSERT_EQ(ptrace(PTRACE_DETACH, waiting, nullptr, nullptr), 0);
  expect_both_end_well();
  EXPECT_EQ(read_text(workshop.path("run") / "config.toml").find("wait-debugger"), std::string::npos);
}

TEST_F(WaitDebugger, ContinuesUnderGdb) {
  const char* const gdb = "/usr/bin/gdb";
  if (access(gdb, X_OK) != 0) GTEST_SKIP() << "needs gdb";
  start({program("convoy-doctor"), "--device", "cpu", "--comm-timeout", "100", "--wait-debugger", "1"});
  const ProcessResult debugger = run_program({gdb, "-nx", "-batch", "-iex", "set debuginfod enabled off",
                                              "-p", std::to_string(ranks[1]->id()), "-ex", "continue"});
  EXPECT_THAT(debugger.out, HasSubstr("exited normally")) << debugger.err;
  expect_both_end_well();
}

TEST(WaitDebuggerFlag, RefusesANonexistentRank) {
  const Workshop workshop;
  const ProcessResult alone = workshop.train("run", {"--wait-debugger", "1"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--wait-debugger 1: found 1 rank, expected a rank from 0 to 0"));
  const ProcessResult two = run_by_mpi(2, workshop.train_arguments("run", {"--wait-debugger", "2"}));
  EXPECT_EQ(two.exit_code, 2) << two.err;
  EXPECT_THAT(two.err, HasSubstr("--wait-debugger 2: found 2 ranks, expected a rank from 0 to 1"));
}

TEST(WaitDebuggerFlag, RefusesDifferentFlags) {
  const int port = free_port();
  const Arguments doctor = {program("convoy-doctor"), "--device", "cpu"};
  Arguments waits = doctor;
  waits.insert(waits.end(), {"--wait-debugger", "0"});
  Process first(doctor, {.environment = rank_environment(0, 2, port)});
  Process second(waits, {.environment = rank_environment(1, 2, port)});
  for (Process* rank : {&first, &second}) {
    const ProcessResult result = rank->wait();
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("--wait-debugger: rank 1 has 0, rank 0 has none"));
  }
}

}  // namespace
}  // namespace convoy::testing
