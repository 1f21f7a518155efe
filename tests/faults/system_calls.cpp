#include "tests/faults/system_calls.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

namespace convoy::testing {
namespace {

SystemCallFaults* active = nullptr;  // the C functions below have no other access to it

std::string path_of(int descriptor) {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor), ignored).string();
}

}  // namespace

SystemCallFaults::SystemCallFaults(Decide decide, std::size_t max_bytes_per_write)
    : decide_(std::move(decide)), max_bytes_per_write_(max_bytes_per_write) {
  active = this;
}

SystemCallFaults::~SystemCallFaults() { active = nullptr; }

bool SystemCallFaults::admit(SystemCall call) {
  calls_.push_back(std::move(call));
  const int error = decide_ ? decide_(calls_.back(), static_cast<int>(calls_.size()) - 1) : 0;
  errno = error;
  return error == 0;
}

}  // namespace convoy::testing

// Definitions in the program take precedence over those of the C library.
extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t count) {
  using convoy::testing::active;
  if (active != nullptr) {
    if (!active->admit({"write", convoy::testing::path_of(descriptor), ""})) return -1;
    count = std::min(count, active->max_bytes_per_write());
  }
  return syscall(SYS_write, descriptor, bytes, count);
}

int fsync(int descriptor) {
  using convoy::testing::active;
  if (active != nullptr && !active->admit({"fsync", convoy::testing::path_of(descriptor), ""})) return -1;
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

int rename(const char* from, const char* to) noexcept {
  using convoy::testing::active;
  if (active != nullptr && !active->admit({"rename", from, to})) return -1;
  return static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

}  // extern "C"
