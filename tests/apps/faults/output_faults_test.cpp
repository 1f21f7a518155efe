// Tests of output that fails on rank 0: a full disk, a read-only disk, a directory that has vanished, a pipe without a
// reader.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "convoy/engine/io/checkpoint.h"
#include "tests/apps/faults/rank_job.h"
#include "tests/testing/support/free_port.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class OutputFaults : public RankJob, public ::testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    if (!may_mount()) GTEST_SKIP() << kNeedsMount;
    fs::create_directory(disk);
    ASSERT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=8m"), 0) << std::strerror(errno);
    is_mounted = true;
  }
  void TearDown() override {
    RankJob::TearDown();
    if (is_mounted) umount2(disk.c_str(), MNT_DETACH);
  }

  /// Trains with an output directory on the small disk until the first checkpoint is complete.
  void start_on_disk() {
    start(GetParam(), "shm", flags);
    for (int i = 0; i < 3000 && !latest(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_TRUE(latest().has_value());
    traces.observe();
  }
  std::optional<io::Checkpoint> latest() const {
    return io::CheckpointDirectory(workshop.path("run") / "checkpoints").latest();
  }
  /// Expects that rank 0 ends with code 8 and `cause`, and the others with code 4 and the same cause.
  void expect_output_error(const std::string& cause) {
    const std::vector<ProcessResult> results = wait();
    for (std::size_t rank = 0; rank < results.size(); ++rank) {
      EXPECT_EQ(results[rank].exit_code, rank == 0 ? 8 : 4) << results[rank].err;
      EXPECT_THAT(results[rank].err,
                  AllOf(HasSubstr(fmt::format("error: [rank {}] ", rank)), HasSubstr(cause)));
      if (rank > 0) {
        EXPECT_THAT(results[rank].err, HasSubstr("rank 0: "));
      }
    }
  }
  /// Expects an intact checkpoint, nothing of an incomplete one, and that the training resumes.
  void expect_intact_checkpoint() {
    const auto checkpoint = latest();
    ASSERT_TRUE(checkpoint.has_value());
    EXPECT_GT(checkpoint->manifest.step, 0);
    std::vector<std::string> leftovers;
    for (const auto& entry : fs::directory_iterator(workshop.path("run") / "checkpoints"))
      if (entry.path().filename().string().starts_with(".")) leftovers.push_back(entry.path());
    EXPECT_THAT(leftovers, IsEmpty());
    Arguments resumed = flags;
    resumed[1] = "20";
    resumed.insert(resumed.end(), {"--resume", "auto"});
    for (const ProcessResult& result : run_by_hand(GetParam(), workshop.train_arguments("run", resumed)))
      EXPECT_EQ(result.exit_code, 0) << result.err;
  }

  const fs::path disk = workshop.path("run");
  const Arguments flags = {"--epochs",     "100000", "--eval-every",   "0",
                           "--save-every", "50",     "--comm-timeout", "100"};
  bool is_mounted = false;
};

INSTANTIATE_TEST_SUITE_P(Ranks, OutputFaults, ::testing::ValuesIn(world_sizes()),
                         ::testing::PrintToStringParamName());

TEST_P(OutputFaults, AFullDiskEndsAllRanksAndKeepsTheCheckpoint) {
  start_on_disk();
  const FaultRecord record(fmt::format("the disk of rank 0 of {} is full", GetParam()));
  {
    std::ofstream filler(disk / "filler", std::ios::binary);
    while (filler.write(std::string(1024, 'x').data(), 1024).flush()) {
    }
  }
  expect_output_error("No space left on device");
  if (!HasFailure())
    record.print("rank 0 exits with code 8, the others with code 4; all give its error", kLostSteps);
  fs::remove(disk / "filler");
  expect_intact_checkpoint();
}

TEST_P(OutputFaults, AReadOnlyDiskEndsAllRanksAndKeepsTheCheckpoint) {
  start_on_disk();
  const FaultRecord record(fmt::format("the disk of rank 0 of {} fails and becomes read-only", GetParam()));
  const fs::path checkpoints = disk / "checkpoints";
  ASSERT_EQ(mount(checkpoints.c_str(), checkpoints.c_str(), nullptr, MS_BIND, nullptr), 0);
  ASSERT_EQ(mount("none", checkpoints.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr), 0);
  expect_output_error("Read-only file system");
  if (!HasFailure())
    record.print("rank 0 exits with code 8, the others with code 4; all give its error", kLostSteps);
  ASSERT_EQ(umount2(checkpoints.c_str(), MNT_DETACH), 0);
  expect_intact_checkpoint();
}

class VanishedOutput : public RankJob, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, VanishedOutput, ::testing::ValuesIn(world_sizes()),
                         ::testing::PrintToStringParamName());

/// Waits until a save has written all its files, and returns its step; -1 after half a minute without one.
std::int64_t wait_for_save(const fs::path& directory) {
  for (int i = 0; i < 3000 && !fs::exists(directory / "LATEST"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // LATEST is renamed last, then synchronized
  const io::CheckpointDirectory checkpoints(directory);
  const auto latest = checkpoints.latest();
  return latest ? latest->manifest.step : -1;
}

/// The next save creates the directory again. The log stays in the file that is open. (A save that is being written
/// when its directory vanishes fails.)
TEST_P(VanishedOutput, IsCreatedAgainByTheNextSave) {
  start(GetParam(), "shm",
        {"--max-steps", "1000000", "--save-every", "1500", "--eval-every", "0", "--comm-timeout", "100"});
  const fs::path checkpoints = workshop.path("run") / "checkpoints";
  const std::int64_t saved = wait_for_save(checkpoints);
  ASSERT_GT(saved, 0);
  const FaultRecord record("the output directory vanishes");
  fs::rename(workshop.path("run"), workshop.path("moved"));
  EXPECT_GT(wait_for_save(checkpoints), saved);
  if (!HasFailure()) record.print("the next save creates it again; the training goes on", "nothing");
  processes[0]->send(SIGTERM);
  for (const ProcessResult& result : wait()) EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
}

/// A job whose stdout and stderr are a pipe that is not read before the training has ended.
class UnreadOutput : public RankJob {
 protected:
  void SetUp() override {
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0) << std::strerror(errno);
    reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ASSERT_GE(reader, 0) << std::strerror(errno);
    fcntl(reader, F_SETPIPE_SZ, 65536);
  }
  void TearDown() override {
    close(reader);
    RankJob::TearDown();
  }
  /// Reads until the writers have closed the pipe.
  std::string read_pipe() const {
    fcntl(reader, F_SETFL, 0);
    std::string text;
    std::array<char, 4096> block{};
    for (ssize_t count = 0; (count = read(reader, block.data(), block.size())) > 0;)
      text.append(block.data(), static_cast<std::size_t>(count));
    return text;
  }

  const fs::path pipe = workshop.path("pipe");
  int reader = -1;
};

TEST_F(UnreadOutput, StopsNoStepAndLosesNoLine) {
  const int port = free_port();
  const Arguments train = workshop.train_arguments("run", {"--epochs", "120", "--eval-every", "0"});
  for (int rank = 0; rank < 2; ++rank) {
    Arguments command = {"/bin/sh", "-c", "exec \"$0\" \"$@\" >" + pipe.string() + " 2>&1"};
    command.insert(command.end(), train.begin(), train.end());
    start_rank(rank, 2, port, rank == 0 ? command : train);
  }
  EXPECT_EQ(processes[1]->wait().exit_code, 0) << "rank 0 waits for the reader";
  EXPECT_TRUE(processes[0]->running()) << "it has not written all";
  EXPECT_EQ(workshop.events("run", "result").size(), 1u);
  const std::string text = read_pipe();
  EXPECT_EQ(processes[0]->wait().exit_code, 0) << text;
  EXPECT_GT(text.size(), 65536u);
  for (int step = 1; step <= 1200; ++step) ASSERT_THAT(text, HasSubstr(fmt::format("step {}/1200  ", step)));
  EXPECT_THAT(text, HasSubstr("\n  test accuracy  "));
}

}  // namespace
}  // namespace convoy::testing
