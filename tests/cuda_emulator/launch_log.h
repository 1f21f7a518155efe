// Which kernels a process launched, for the check that none of the library is left out (coverage.py).
#pragma once

#include <set>

namespace convoy::emulator {

class LaunchLog {
 public:
  void add(const void* kernel) { kernels_.insert(kernel); }
  /// Where the environment has CONVOY_EMULATOR_LOG=FOLDER: into a file there, a line "program address" a
  /// kernel, the address as nm prints the program's symbols. (A kernel without external linkage has no name
  /// at run time.)
  void write() const;

 private:
  std::set<const void*> kernels_;
};

}  // namespace convoy::emulator
