// What a job leaves behind: processes, socket files, and files of shared memory.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

namespace convoy::testing {

/// Returns the processes whose command line contains `text`. Processes that have exited have none.
std::vector<pid_t> processes_with(const std::string& text);

/// The traces of a job, whose processes have a text in their command lines, such as its output directory.
class JobTraces {
 public:
  explicit JobTraces(std::string text) : text_(std::move(text)) {}

  /// Adds the socket files, and the files in /dev/shm, that the processes of the job have open or mapped now.
  void observe();
  /// Returns what is left after `limit` at the latest: processes of the job, and files that observe() has
  /// seen. Files whose paths begin with `ignored` are left out.
  std::vector<std::string> remaining(std::chrono::seconds limit = std::chrono::seconds(10),
                                     const std::string& ignored = "-") const;

 private:
  std::string text_;
  std::set<std::string> files_;
};

}  // namespace convoy::testing
