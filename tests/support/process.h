// Runs a program as a user would: arguments, environment, standard streams, signals, exit code.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace convoy::testing {

struct ProcessOptions {
  std::map<std::string, std::string> environment;  // added to this process's
  std::filesystem::path folder;                    // working directory; empty: this process's
  std::string input;                               // standard input
  std::int64_t largest_file = 0;  // bytes that a file may have, like a disk that runs full; 0: no limit
};

struct ProcessResult {
  int exit_code = -1;  // -1 where a signal ended it
  int signal = 0;
  std::string out, err;
};

/// A running program. Destruction kills it where it still runs.
class Process {
 public:
  Process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t id() const { return id_; }
  void send(int signal) const;
  bool running();
  /// Waits for the end and returns everything that was printed. One that takes longer than `limit` is killed,
  /// which shows as its signal.
  ProcessResult wait(std::chrono::seconds limit = std::chrono::seconds(240));

 private:
  pid_t id_ = -1;
  int status_ = 0;
  bool ended_ = false;
  std::FILE* out_;  // unlinked files: no pipe can fill up and stop the program
  std::FILE* err_;
};

ProcessResult run_program(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

}  // namespace convoy::testing
