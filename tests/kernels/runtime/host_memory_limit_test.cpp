// Tests of the memory limit, with the files of control groups in a temporary directory.
#include "convoy/kernels/runtime/memory/host_memory_limit.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

class HostMemoryLimit : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root.path() / path).parent_path());
    std::ofstream(root.path() / path) << text << "\n";
  }
  std::size_t limit() const { return host_memory_limit(root.path()); }

  TempDirectory root;
  std::size_t physical = host_memory_limit(root.path());  // without any file
};

TEST_F(HostMemoryLimit, IsThePhysicalMemoryWithoutControlGroups) {
  EXPECT_GT(physical, std::size_t{1} << 26);
  write("proc/self/cgroup", "0::/job");
  write("sys/fs/cgroup/job/memory.max", "max");
  EXPECT_EQ(limit(), physical);
  write("sys/fs/cgroup/job/memory.max", "9223372036854771712");
  EXPECT_EQ(limit(), physical);
}

TEST_F(HostMemoryLimit, IsTheLowestOfTheGroupsAround) {
  write("proc/self/cgroup", "0::/system.slice/job/step");
  write("sys/fs/cgroup/system.slice/job/step/memory.max", "max");
  write("sys/fs/cgroup/system.slice/job/memory.max", "2000000");
  EXPECT_EQ(limit(), 2'000'000U);
  write("sys/fs/cgroup/system.slice/memory.max", "3000000");
  EXPECT_EQ(limit(), 2'000'000U);
  write("sys/fs/cgroup/memory.max", "1000000");  // of a container
  EXPECT_EQ(limit(), 1'000'000U);
}

TEST_F(HostMemoryLimit, ReadsVersion1) {
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/slurm/job\n3:cpuset:/other\n0::/");
  write("sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(limit(), physical);
  write("sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "4000000");
  write("sys/fs/cgroup/memory/other/memory.limit_in_bytes", "5");
  EXPECT_EQ(limit(), 4'000'000U);
}

/// Docker without a namespace for control groups: the path is that of the host.
TEST_F(HostMemoryLimit, ReadsTheMountPointIfThePathDoesNotExist) {
  write("proc/self/cgroup", "4:memory:/docker/1234");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "4000000");
  EXPECT_EQ(limit(), 4'000'000U);
  write("proc/self/cgroup", "4:memory:/../..");
  EXPECT_EQ(limit(), 4'000'000U);
}

}  // namespace
}  // namespace convoy::testing
