// A child process: its output by lines, its input, a link for messages, and how it ended.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convoy/comm/cluster/net/socket.h"

namespace convoy::launcher {

/// How a process ended: with an exit code, or by a signal.
struct ExitStatus {
  int code = 0;
  int signal = 0;  // 0: none

  bool is_success() const { return code == 0 && signal == 0; }
};
/// Returns "has exited with code 4" or "was killed by SIGKILL".
std::string describe(const ExitStatus& status);

/// Reads a descriptor without blocking and divides the bytes into lines. A line of more than 64 KiB is
/// divided.
class LineReader {
 public:
  explicit LineReader(dist::Socket file = {});
  int descriptor() const { return file_.descriptor(); }
  bool is_open() const { return static_cast<bool>(file_); }
  /// Calls `on_line` for each complete line that is available. At the end of the file, also for an incomplete
  /// one, and closes the descriptor.
  void read(const std::function<void(const std::string&)>& on_line);

 private:
  dist::Socket file_;
  std::string bytes_;
};

struct ChildOptions {
  std::vector<std::string> command;                // a path, and its arguments
  std::map<std::string, std::string> environment;  // all variables
  std::filesystem::path directory;                 // working directory; empty: that of this process
  bool dies_with_parent = false;                   // by SIGKILL
  bool has_input = false;                          // otherwise standard input is /dev/null
  /// The environment variable with the descriptor of the link, which the child reads and writes; empty: no
  /// link.
  std::string link_variable;
};

enum class Stream { output, error, link };

/// A running child process, in a process group of its own. Destroying the object kills the process group.
class ChildProcess {
 public:
  /// Starts the process. A command that cannot be executed exits with code 127. Throws DeviceError if there
  /// can be no new process.
  explicit ChildProcess(const ChildOptions& options);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Appends the descriptors that are readable when there is output, or when the process has ended.
  void add_descriptors(std::vector<pollfd>& descriptors) const;
  /// Calls `on_line` for each available line. Does not block.
  void read_lines(const std::function<void(Stream, const std::string&)>& on_line);
  /// Returns how the process has ended; nullopt while it is running. Does not block. read_lines() then
  /// returns the last lines.
  std::optional<ExitStatus> poll_exit();

  /// Writes a line to the standard input, or to the link. Ignores a process that no longer reads.
  void write_input(const std::string& line) const { write_line(input_, line); }
  void write_link(const std::string& line) const { write_line(link_, line); }
  void close_input() { input_.close(); }
  /// Sends a signal to the process group.
  void send(int signal) const;

 private:
  static void write_line(const dist::Socket& file, const std::string& line);

  pid_t id_ = -1;
  dist::Socket handle_;  // readable when the process has ended (pidfd_open(2))
  dist::Socket input_, link_;
  LineReader output_, error_, link_reader_;
  std::optional<ExitStatus> status_;
};

}  // namespace convoy::launcher
