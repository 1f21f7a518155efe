// Tests of full and failing disks: the old checkpoint remains, temporaries are removed, the error is clear.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>

#include "convoy/kernels/base/check.h"
#include "tests/faults/checkpoint_fixture.h"
#include "tests/faults/system_calls.h"
#include "tests/testing/support/process.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <class F>
std::string output_error(F&& f) {
  try {
    f();
    return "";
  } catch (const OutputError& error) {
    return error.what();
  }
}

struct DiskFault : ::testing::Test {
  TempDirectory temp{TempDirectory::in_memory()};
  CheckpointScene scene{temp.path() / "checkpoints"};

  void SetUp() override { scene.save(1, 1); }
  std::string save_again() {
    return output_error([this] { scene.save(2, 2); });
  }
  void expect_old_checkpoint_intact() {
    EXPECT_EQ(scene.loaded_mark(), 1);
    EXPECT_THAT(scene.leftovers(), IsEmpty());
  }
};

TEST_F(DiskFault, FullDiskKeepsTheOldCheckpoint) {
  if (!testing::may_mount()) GTEST_SKIP() << testing::kNeedsMount;
  const fs::path disk = temp.path() / "disk";
  fs::create_directory(disk);
  ASSERT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=256k"), 0) << std::strerror(errno);
  struct Unmount {
    const fs::path& disk;
    ~Unmount() { umount2(disk.c_str(), MNT_DETACH); }
  } const unmount{disk};

  CheckpointScene small(disk / "checkpoints");
  small.save(1, 1);
  const fs::path filler = disk / "filler";
  // Pages of 4 KiB: the disk becomes full at the directory or at one of its files.
  for (const int free_kib : {0, 4, 8, 12}) {
    SCOPED_TRACE(free_kib);
    {
      std::ofstream out(filler, std::ios::binary);
      while (out.write(std::string(1024, 'x').data(), 1024).flush()) {
      }
    }
    fs::resize_file(filler, fs::file_size(filler) - static_cast<std::uintmax_t>(free_kib) * 1024);
    const std::string message = output_error([&] { small.save(2, 2); });
    if (free_kib == 0) {
      EXPECT_THAT(message, AllOf(HasSubstr(disk.string()), HasSubstr("No space left on device")));
    }
    EXPECT_THAT(small.loaded_mark(), message.empty() ? 2 : 1);
    EXPECT_THAT(small.leftovers(), IsEmpty());
    fs::remove(filler);
    small.save(1, 1);
  }
  small.save(3, 3);
  EXPECT_EQ(small.loaded_mark(), 3);
}

TEST_F(DiskFault, FileSizeLimitKeepsTheOldCheckpoint) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);  // so that write() fails with EFBIG
  rlimit limit = old;
  limit.rlim_cur = 200;
  setrlimit(RLIMIT_FSIZE, &limit);
  const std::string message = save_again();
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(message, AllOf(HasSubstr("model.safetensors"), HasSubstr("File too large")));
  expect_old_checkpoint_intact();
}

/// The parameter is the difference in steps between saves: 0 saves the same step again, which replaces it.
struct DiskFaultAnywhere : DiskFault, ::testing::WithParamInterface<int> {};

/// Makes each system call of a save fail, one per save, with an error that is not retried.
TEST_P(DiskFaultAnywhere, LeavesTheOldOrTheNewCheckpoint) {
  std::int64_t step = 1 + GetParam();
  std::vector<SystemCall> calls;
  {
    const SystemCallFaults record;
    scene.save(step, 2);
    calls = record.calls();
  }
  ASSERT_GE(calls.size(), 12u);
  float before = 2;
  for (std::size_t failing = 0; failing < calls.size(); ++failing) {
    SCOPED_TRACE(calls[failing].name + " " + calls[failing].path);
    const float mark = before + 1;
    step += GetParam();
    std::string message;
    {
      const SystemCallFaults faults(
          [&](const SystemCall&, int number) { return number == static_cast<int>(failing) ? ENOSPC : 0; });
      message = output_error([&] { scene.save(step, mark); });
    }
    // A failure to prune an old checkpoint is not an error.
    if (calls[failing].target.find(".tmp-removed") == std::string::npos) {
      EXPECT_THAT(message, AllOf(HasSubstr("No space left on device"), HasSubstr(temp.path().string())));
    }
    const float found = scene.loaded_mark();
    EXPECT_THAT(found, AnyOf(before, mark));
    EXPECT_TRUE(scene.all_verify());
    // If the new checkpoint is in place, the next save removes the one that it replaced.
    if (GetParam() != 0 || found == before) {
      EXPECT_THAT(scene.leftovers(), IsEmpty());
    }
    before = found;
  }
  scene.save(step, 100);
  EXPECT_EQ(scene.loaded_mark(), 100);
  EXPECT_THAT(scene.leftovers(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Steps, DiskFaultAnywhere, ::testing::Values(0, 1), [](const auto& test) {
  return std::string(test.param == 0 ? "SavingTheSameStepAgain" : "SavingTheNextStep");
});

TEST_F(DiskFault, PersistentErrorKeepsTheOldCheckpoint) {
  for (const char* call : {"write", "fsync"}) {
    SCOPED_TRACE(call);
    const SystemCallFaults faults([&](const SystemCall& made, int) { return made.name == call ? EIO : 0; });
    EXPECT_THAT(save_again(), AllOf(HasSubstr("model.safetensors"), HasSubstr(std::string(call) + " failed"),
                                    HasSubstr("Input/output error")));
  }
  expect_old_checkpoint_intact();
}

// After a failed fsync the kernel may have dropped the pages, so a retry must write the whole file again.
TEST_F(DiskFault, FailedFsyncRewritesTheFile) {
  const auto is_model = [](const SystemCall& call, const char* name) {
    return call.name == name && call.path.ends_with("model.safetensors");
  };
  const auto writes = [&](const SystemCallFaults& faults) {
    return std::count_if(faults.calls().begin(), faults.calls().end(),
                         [&](const SystemCall& call) { return is_model(call, "write"); });
  };
  std::ptrdiff_t writes_without_faults = 0;
  {
    const SystemCallFaults record;
    EXPECT_EQ(save_again(), "");
    writes_without_faults = writes(record);
  }
  EXPECT_GT(writes_without_faults, 0);
  int failures = 0;
  const SystemCallFaults faults(
      [&](const SystemCall& call, int) { return is_model(call, "fsync") && failures++ < 2 ? EIO : 0; });
  EXPECT_EQ(save_again(), "");
  EXPECT_EQ(writes(faults), 3 * writes_without_faults);
  EXPECT_EQ(scene.loaded_mark(), 2);
}

TEST_F(DiskFault, CompletesShortAndInterruptedWrites) {
  {
    const SystemCallFaults faults(
        [](const SystemCall& call, int number) {
          return call.name == "write" && number % 3 == 0 ? EINTR : 0;
        },
        61);
    EXPECT_EQ(save_again(), "");
    EXPECT_GT(faults.calls().size(), 60u);
  }
  EXPECT_EQ(scene.loaded_mark(), 2);
}

TEST_F(DiskFault, RetriesAfterATransientError) {
  int failures = 0;
  const SystemCallFaults faults(
      [&](const SystemCall& call, int) { return call.name == "write" && failures++ == 0 ? EAGAIN : 0; });
  EXPECT_EQ(save_again(), "");
  EXPECT_EQ(scene.loaded_mark(), 2);
}

// A power failure may lose all data that have not been synced, so the order of the calls matters.
TEST_F(DiskFault, SyncsFilesBeforeTheRename) {
  std::vector<SystemCall> calls;
  {
    const SystemCallFaults record;
    scene.save(2, 2);
    calls = record.calls();
  }
  const std::string root = scene.root().string();
  const auto position = [&](const std::string& name, const std::string& path) {
    const auto found = std::find_if(calls.rbegin(), calls.rend(), [&](const SystemCall& call) {
      return call.name == name && call.path == path;
    });
    EXPECT_NE(found, calls.rend()) << name << " " << path;
    return calls.rend() - found;
  };
  const auto of_step = std::find_if(calls.begin(), calls.end(), [&](const SystemCall& call) {
    return call.name == "rename" && call.path.starts_with(root + "/.tmp-step_000002.");
  });
  ASSERT_NE(of_step, calls.end());
  const std::string temporary = of_step->path;
  const auto renamed = position("rename", temporary);
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
    const std::string path = temporary + "/" + file;
    EXPECT_LT(position("write", path), position("fsync", path));
    EXPECT_LT(position("fsync", path), position("fsync", temporary));
  }
  EXPECT_LT(position("fsync", temporary), renamed);
  EXPECT_EQ(calls[static_cast<std::size_t>(renamed)].path, root);  // the next call
  EXPECT_EQ(calls[static_cast<std::size_t>(renamed)].name, "fsync");
  const auto is_latest = [&](const SystemCall& call) {
    return call.path.starts_with(root + "/.tmp-LATEST.");
  };
  const auto latest = std::find_if(calls.begin(), calls.end(), is_latest);
  ASSERT_NE(latest, calls.end());
  EXPECT_LT(renamed, position("write", latest->path));
  EXPECT_LT(position("fsync", latest->path), position("rename", latest->path));
}

TEST_F(DiskFault, ReportsADirectoryThatCannotBeCreated) {
  temp.write("file", "");
  CheckpointScene blocked(temp.path() / "file" / "checkpoints");
  EXPECT_THAT(output_error([&] { blocked.save(1, 1); }),
              AllOf(HasSubstr("file/checkpoints"), HasSubstr("directory")));
}

}  // namespace
}  // namespace convoy::testing
