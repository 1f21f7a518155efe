// Failing disks without a failing disk: the fault tests' program defines write, fsync and rename itself, so
// every call of the code under test comes here first. Nothing in the code under test knows of it.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace convoy::testing {

struct SystemCall {
  std::string name;    // "write", "fsync", "rename"
  std::string path;    // of the descriptor, or rename's first
  std::string target;  // rename's second
};

/// While one lives, this program's calls are recorded, and may be made to fail.
class SystemCallFaults {
 public:
  /// What errno the call fails with; 0: it is carried out. number: of the call, from 0.
  using Decide = std::function<int(const SystemCall& call, int number)>;

  explicit SystemCallFaults(Decide decide = {},
                            std::size_t most_bytes_a_write = std::numeric_limits<std::size_t>::max());
  ~SystemCallFaults();
  SystemCallFaults(const SystemCallFaults&) = delete;
  SystemCallFaults& operator=(const SystemCallFaults&) = delete;

  const std::vector<SystemCall>& calls() const { return calls_; }
  std::size_t most_bytes_a_write() const { return most_bytes_a_write_; }
  /// Records a call; whether it may be carried out. Sets errno where not.
  bool admit(SystemCall call);

 private:
  Decide decide_;
  std::size_t most_bytes_a_write_;
  std::vector<SystemCall> calls_;
};

}  // namespace convoy::testing
