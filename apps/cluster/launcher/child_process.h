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

/// Reads a descriptor without blocking and divides the bytes into lines, of `max_bytes` at most.
class LineReader {
 public:
  static constexpr std::size_t kMaxTextBytes = std::size_t{64} << 10;     // of a rank's output
  static constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 20;  // between launcher and agent
  explicit LineReader(dist::Socket file = {}, std::size_t max_bytes = kMaxTextBytes);
  int descriptor() const { return file_.descriptor(); }
  bool is_open() const { return static_cast<bool>(file_); }
  /// Calls `on_line` for each complete line that is available. At the end of the file, also for an incomplete
  /// one, and closes the descriptor.
  void read(const std::function<void(const std::string&)>& on_line);

 private:
  dist::Socket file_;
  std::size_t max_bytes_;
  std::string bytes_;
};

struct ChildOptions {
  std::vector<std::string> command;                // a path, and its arguments
  std::map<std::string, std::string> environment;  // all variables
  std::filesystem::path directory;                 // working directory; empty: that of this process
  bool dies_with_parent = false;                   // by SIGKILL
  bool is_agent = false;  // gets and sends messages by its streams; otherwise standard input is /dev/null
  /// The environment variable with the descriptor of the link, which the child reads and writes; empty: no
  /// link.
  std::string link_variable;
  /// A descriptor that the child inherits, and the environment variable with its number; -1: none.
  int inherited = -1;
  std::string inherited_variable = {};
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

  /// Appends the descriptors that are ready when there is output, when the process reads again, or has ended.
  void add_descriptors(std::vector<pollfd>& descriptors) const;
  /// Calls `on_line` for each available line, and writes what could not be written before. Does not block.
  void read_lines(const std::function<void(Stream, const std::string&)>& on_line);
  /// Returns how the process has ended; nullopt while it is running. Does not block. read_lines() then
  /// returns the last lines.
  std::optional<ExitStatus> poll_exit();
  /// Returns whether a signal had stopped the process (SIGSTOP) when poll_exit() was called last.
  bool is_stopped() const { return is_stopped_; }

  /// Writes a line to the standard input, or to the link, as soon as the process reads. Does not block.
  void write_input(const std::string& line) { input_.write(line + "\n"); }
  void write_link(const std::string& line) { link_.write(line + "\n"); }
  /// Sends a signal to the process group.
  void send(int signal) const;

 private:
  struct Writer {
    dist::Socket socket;
    std::string bytes;  // that the process has not read
    void write(const std::string& more);
  };

  pid_t id_ = -1;
  dist::Socket handle_;  // readable when the process has ended (pidfd_open(2))
  Writer input_, link_;
  LineReader output_, error_, link_reader_;
  bool is_stopped_ = false;
  std::optional<ExitStatus> status_;
};

}  // namespace convoy::launcher
