// Tests of an output directory that fails on rank 0: a full disk, a read-only disk, a directory that has vanished.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "convoy/engine/io/checkpoint.h"
#include "tests/apps/faults/rank_job.h"

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

}  // namespace
}  // namespace convoy::testing
