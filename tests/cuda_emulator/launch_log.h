// Which kernels a process launched, for the check that none of the library is left out (coverage.py), and
// with how much, for the table of scripts/kernel_resources.py.
#pragma once

#include <cstddef>
#include <map>

namespace convoy::emulator {

class LaunchLog {
 public:
  void add(const void* kernel, unsigned threads, std::size_t shared_bytes) {
    Most& most = kernels_[kernel];
    if (threads > most.threads) most.threads = threads;
    if (shared_bytes > most.shared_bytes) most.shared_bytes = shared_bytes;
  }
  /// Where the environment has CONVOY_EMULATOR_LOG=FOLDER: into a file there, a line "program address threads
  /// shared_bytes" a kernel, the address as nm prints the program's symbols. (A kernel without external
  /// linkage has no name at run time.)
  void write() const;

 private:
  /// Of all its launches.
  struct Most {
    unsigned threads = 0;  // of a block
    std::size_t shared_bytes = 0;
  };
  std::map<const void*, Most> kernels_;
};

}  // namespace convoy::emulator
