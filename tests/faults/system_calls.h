// Fault injection for write, fsync and rename. The test program defines these functions itself, so every call
// of the code under test can be recorded or made to fail without changes to that code.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace convoy::testing {

/// One recorded call.
struct SystemCall {
  std::string name;    // "write", "fsync", "rename"
  std::string path;    // of the descriptor, or the first argument of rename
  std::string target;  // the second argument of rename
};

/// A scope in which the calls of this program are recorded and may be made to fail. At most one may exist.
class SystemCallFaults {
 public:
  /// Returns the errno with which call `number`, counted from 0, fails; 0 executes the call.
  using Decide = std::function<int(const SystemCall& call, int number)>;

  /// Limits each write to `max_bytes_per_write`, which causes short writes.
  explicit SystemCallFaults(Decide decide = {},
                            std::size_t max_bytes_per_write = std::numeric_limits<std::size_t>::max());
  ~SystemCallFaults();
  SystemCallFaults(const SystemCallFaults&) = delete;
  SystemCallFaults& operator=(const SystemCallFaults&) = delete;

  const std::vector<SystemCall>& calls() const { return calls_; }
  std::size_t max_bytes_per_write() const { return max_bytes_per_write_; }
  /// Records a call and returns whether to execute it. If not, sets errno.
  bool admit(SystemCall call);

 private:
  Decide decide_;
  std::size_t max_bytes_per_write_;
  std::vector<SystemCall> calls_;
};

}  // namespace convoy::testing
