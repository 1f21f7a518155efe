// Tests of SIGKILL during a save: at any moment, either the previous checkpoint or the new one loads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <iostream>
#include <thread>

#include "tests/faults/checkpoint_fixture.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AnyOf;
using ::testing::IsEmpty;

/// Runs `action` in a forked child and exits. The child must not return into the tests, even by an exception.
[[noreturn]] void run_and_exit(const std::function<void()>& action) {
  try {
    action();
    _exit(0);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    _exit(1);
  }
}

/// Runs `action` in a child process that stops at the entry and at the exit of every system call, and kills
/// it at stop number `kill_at`, counted from 1 (0: never). Returns the number of stops; -1 if tracing is
/// forbidden.
int run_traced(const std::function<void()>& action, int kill_at) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
    raise(SIGSTOP);
    run_and_exit(action);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) return -1;
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  int stops = 0;
  int signal = 0;
  while (true) {
    ptrace(PTRACE_SYSCALL, child, nullptr, signal);
    waitpid(child, &status, 0);
    if (!WIFSTOPPED(status)) return stops;
    const bool at_system_call = WSTOPSIG(status) == (SIGTRAP | 0x80);
    signal = at_system_call ? 0 : WSTOPSIG(status);
    if (at_system_call && ++stops == kill_at) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return stops;
    }
  }
}

/// The parameter is the step of the killed save.
class CheckpointKill : public ::testing::TestWithParam<int> {};

TEST_P(CheckpointKill, AtAnySystemCallLeavesTheOldOrTheNewCheckpoint) {
  const TempDirectory temp(TempDirectory::in_memory());
  const fs::path before = temp.path() / "before", trial = temp.path() / "trial";
  CheckpointScene(before).save(1, 1);
  CheckpointScene scene(trial);
  const auto reset = [&] {
    fs::remove_all(trial);
    fs::copy(before, trial, fs::copy_options::recursive);
  };
  const auto save = [&] { scene.save(GetParam(), 2); };

  reset();
  const int stops = run_traced(save, 0);
  if (stops < 0) GTEST_SKIP() << "needs the permission to trace a child";
  ASSERT_EQ(scene.loaded_mark(), 2);
  ASSERT_GT(stops, 100);

  constexpr int kKills = 60;
  int old_ones = 0, new_ones = 0;
  for (int kill_number = 0; kill_number < kKills; ++kill_number) {
    const int kill_at = 1 + kill_number * (stops - 1) / (kKills - 1);
    SCOPED_TRACE("killed at stop " + std::to_string(kill_at) + " of " + std::to_string(stops));
    reset();
    run_traced(save, kill_at);
    const float mark = scene.loaded_mark();
    ASSERT_THAT(mark, AnyOf(1, 2));
    ASSERT_TRUE(scene.all_verify());
    ++(mark == 1 ? old_ones : new_ones);
    scene.save(3, 3);
    ASSERT_EQ(scene.loaded_mark(), 3);
    ASSERT_THAT(scene.leftovers(), IsEmpty());
  }
  EXPECT_GT(old_ones, 10);  // kills happened before and after the commit of the save
  EXPECT_GT(new_ones, 3);
}

INSTANTIATE_TEST_SUITE_P(Steps, CheckpointKill, ::testing::Values(1, 2), [](const auto& test) {
  return std::string(test.param == 1 ? "SavingTheSameStepAgain" : "SavingTheNextStep");
});

// As above without tracing: a child saves in a loop and is killed after varying times.
TEST(CheckpointKillByClock, LeavesALoadableCheckpoint) {
  const TempDirectory temp(TempDirectory::in_memory());
  CheckpointScene scene(temp.path() / "checkpoints");
  std::int64_t last = 0;
  for (int trial = 0; trial < 50; ++trial) {
    int first_save_done[2];
    ASSERT_EQ(pipe(first_save_done), 0);
    const pid_t child = fork();
    if (child == 0) {
      run_and_exit([&] {
        for (std::int64_t step = last + 1;; ++step) {
          scene.save(step, static_cast<float>(step));
          if (step == last + 1) close(first_save_done[1]);
        }
      });
    }
    close(first_save_done[1]);
    char unused;
    EXPECT_EQ(read(first_save_done[0], &unused, 1), 0);  // end of file: the child has closed its end
    close(first_save_done[0]);
    std::this_thread::sleep_for(std::chrono::microseconds(7919 * trial % 10007));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const float mark = scene.loaded_mark();
    ASSERT_GT(mark, static_cast<float>(last)) << "trial " << trial;
    last = static_cast<std::int64_t>(mark);
  }
}

}  // namespace
}  // namespace convoy::testing
