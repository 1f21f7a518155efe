// A child process with its arguments, environment, standard streams, signals and exit code.
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
  std::map<std::string, std::string> environment;  // added to the environment of this process
  std::filesystem::path directory;                 // working directory; empty: that of this process
  std::string input;                               // standard input
  std::int64_t max_file_bytes = 0;  // maximum size of a file, to simulate a full disk; 0: no limit
};

struct ProcessResult {
  int exit_code = -1;  // -1 if a signal ended the process
  int signal = 0;      // that ended the process, or 0
  std::string out, err;
};

/// A child process. The destructor kills it if it is still running.
class Process {
 public:
  /// Starts the program arguments[0], a path. Throws std::runtime_error if fork() fails; a program that
  /// cannot be executed exits with code 127.
  Process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t id() const { return id_; }
  /// Sends `signal` to the process.
  void send(int signal) const;
  /// Returns whether the process is still running. Does not wait.
  bool running();
  /// Blocks until the process exits, and returns its output. Kills it after `limit`; the result then has the
  /// signal SIGKILL.
  ProcessResult wait(std::chrono::seconds limit = std::chrono::seconds(240));

 private:
  pid_t id_ = -1;
  int status_ = 0;
  bool ended_ = false;
  std::FILE* out_;  // unlinked files: unlike a pipe, they cannot fill up and block the program
  std::FILE* err_;
};

/// Returns whether this process may mount file systems. Asks by mounting one where no other process sees it.
bool may_mount();
inline constexpr const char* kNeedsMount =
    "needs the permission to mount file systems";  ///< For GTEST_SKIP().

/// Runs a program until it exits.
ProcessResult run_program(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

}  // namespace convoy::testing
