// A log of the kernels that a process launched, for tests/coverage.py and scripts/compiled_kernels.py.
#pragma once

#include <cstddef>
#include <map>

namespace convoy::emulator {

/// The maximum block size and shared memory of each launched kernel.
class LaunchLog {
 public:
  /// Adds one launch of `kernel` with blocks of `threads` threads.
  void add(const void* kernel, unsigned threads, std::size_t shared_bytes) {
    Maximum& maximum = kernels_[kernel];
    if (threads > maximum.threads) maximum.threads = threads;
    if (shared_bytes > maximum.shared_bytes) maximum.shared_bytes = shared_bytes;
  }
  /// If CONVOY_EMULATOR_LOG=DIRECTORY is set, appends one line per kernel to a file there: "program address
  /// threads shared_bytes". The address has the format of nm's symbols of the program, because a kernel
  /// without external linkage has no name at run time.
  void write() const;

 private:
  struct Maximum {
    unsigned threads = 0;  // per block
    std::size_t shared_bytes = 0;
  };
  std::map<const void*, Maximum> kernels_;
};

}  // namespace convoy::emulator
