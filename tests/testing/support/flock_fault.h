// A file system without locks, simulated. Defines flock(2), which takes precedence over that of the C
// library: include this header in one file of a test program only.
#pragma once

#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace convoy::testing {

/// The error with which flock() fails; 0: it works.
inline std::atomic<int> flock_error = 0;

/// Makes flock() fail while the object exists.
struct WithoutLocks {
  explicit WithoutLocks(int error = ENOLCK) { flock_error = error; }
  ~WithoutLocks() { flock_error = 0; }
};

}  // namespace convoy::testing

extern "C" int flock(int descriptor, int operation) noexcept {
  if (const int error = convoy::testing::flock_error; error != 0) {
    errno = error;
    return -1;
  }
  return static_cast<int>(syscall(SYS_flock, descriptor, operation));
}
