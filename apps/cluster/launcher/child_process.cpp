#include "convoy/apps/cluster/launcher/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "convoy/kernels/base/check.h"

namespace convoy::launcher {
namespace {

using dist::Socket;

struct Pipe {
  Socket read, write;
};

/// Returns a pipe, or two connected sockets: writing to one whose peer is closed must not raise SIGPIPE.
Pipe make_pipe(bool is_socket_pair = false) {
  std::array<int, 2> ends{};
  if ((is_socket_pair ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data())
                      : pipe2(ends.data(), O_CLOEXEC)) != 0)
    fail<DeviceError>("{}: {}", is_socket_pair ? "a socket pair" : "a pipe", std::strerror(errno));
  return {Socket(ends[0]), Socket(ends[1])};
}

/// Returns pointers to the strings, followed by null, as exec expects them.
std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::string describe(const ExitStatus& status) {
  if (status.signal == 0) return fmt::format("has exited with code {}", status.code);
  const char* const name = sigabbrev_np(status.signal);
  return name == nullptr ? fmt::format("was killed by signal {}", status.signal)
                         : fmt::format("was killed by SIG{}", name);
}

LineReader::LineReader(dist::Socket file, std::size_t max_bytes)
    : file_(std::move(file)), max_bytes_(max_bytes) {
  if (file_) fcntl(descriptor(), F_SETFL, fcntl(descriptor(), F_GETFL) | O_NONBLOCK);
}

void LineReader::read(const std::function<void(const std::string&)>& on_line) {
  std::array<char, 4096> block;
  while (file_) {
    const ssize_t count = ::read(file_.descriptor(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      file_.close();
      if (!bytes_.empty()) on_line(std::exchange(bytes_, {}));
      return;
    }
    bytes_.append(block.data(), static_cast<std::size_t>(count));
    std::size_t begin = 0;
    for (std::size_t end; (end = bytes_.find('\n', begin)) != std::string::npos; begin = end + 1)
      on_line(bytes_.substr(begin, end - begin));
    bytes_.erase(0, begin);
    if (bytes_.size() <= max_bytes_) continue;
    on_line(bytes_);
    bytes_.clear();
  }
}

ChildProcess::ChildProcess(const ChildOptions& options) {
  Pipe input = options.is_agent ? make_pipe(/*is_socket_pair=*/true) : Pipe{};
  Pipe output = make_pipe(), error = make_pipe();
  Pipe link = options.link_variable.empty() ? Pipe{} : make_pipe(/*is_socket_pair=*/true);
  // Everything that allocates precedes fork().
  std::vector<std::string> command = options.command, environment;
  for (const auto& [name, value] : options.environment) environment.push_back(name + "=" + value);
  if (link.write) environment.push_back(fmt::format("{}={}", options.link_variable, link.write.descriptor()));
  if (options.inherited >= 0)
    environment.push_back(fmt::format("{}={}", options.inherited_variable, options.inherited));
  std::vector<char*> arguments = pointers_to(command), variables = pointers_to(environment);
  const std::string directory = options.directory.string();
  const std::string no_program = fmt::format("cannot be executed: {}\n", options.command.front());
  const pid_t parent = getpid();
  id_ = fork();
  if (id_ < 0) fail<DeviceError>("{}: no new process: {}", options.command.front(), std::strerror(errno));
  if (id_ == 0) {
    setpgid(0, 0);
    if (options.dies_with_parent) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);  // which died before prctl()
    for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_DFL);
    dup2(input.read ? input.read.descriptor() : open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(output.write.descriptor(), STDOUT_FILENO);
    dup2(error.write.descriptor(), STDERR_FILENO);
    if (link.write) fcntl(link.write.descriptor(), F_SETFD, 0);
    if (options.inherited >= 0) fcntl(options.inherited, F_SETFD, 0);
    if (directory.empty() || chdir(directory.c_str()) == 0)
      execve(arguments.front(), arguments.data(), variables.data());
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, no_program.data(), no_program.size());
    _exit(127);
  }
  setpgid(id_, id_);  // also here: a signal may be sent before the child has run
  handle_ = Socket(static_cast<int>(syscall(SYS_pidfd_open, id_, 0)));
  input_.socket = std::move(input.write);
  output_ = LineReader(std::move(output.read),
                       options.is_agent ? LineReader::kMaxMessageBytes : LineReader::kMaxTextBytes);
  error_ = LineReader(std::move(error.read));
  if (link.read) {
    link_.socket = Socket(fcntl(link.read.descriptor(), F_DUPFD_CLOEXEC, 0));
    link_reader_ = LineReader(std::move(link.read));
  }
}

ChildProcess::~ChildProcess() {
  if (status_) return;
  send(SIGKILL);
  while (waitpid(id_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::add_descriptors(std::vector<pollfd>& descriptors) const {
  for (const int descriptor :
       {handle_.descriptor(), output_.descriptor(), error_.descriptor(), link_reader_.descriptor()})
    if (descriptor >= 0) descriptors.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
  for (const Writer* writer : {&input_, &link_})
    if (!writer->bytes.empty())
      descriptors.push_back({.fd = writer->socket.descriptor(), .events = POLLOUT, .revents = 0});
}

void ChildProcess::read_lines(const std::function<void(Stream, const std::string&)>& on_line) {
  input_.write("");
  link_.write("");
  output_.read([&](const std::string& line) { on_line(Stream::output, line); });
  error_.read([&](const std::string& line) { on_line(Stream::error, line); });
  link_reader_.read([&](const std::string& line) { on_line(Stream::link, line); });
}

std::optional<ExitStatus> ChildProcess::poll_exit() {
  int status = 0;
  if (status_ || waitpid(id_, &status, WNOHANG | WUNTRACED | WCONTINUED) != id_) return status_;
  is_stopped_ = WIFSTOPPED(status);
  if (is_stopped_ || WIFCONTINUED(status)) return {};
  handle_.close();
  status_ =
      WIFSIGNALED(status) ? ExitStatus{.signal = WTERMSIG(status)} : ExitStatus{.code = WEXITSTATUS(status)};
  return status_;
}

void ChildProcess::Writer::write(const std::string& more) {
  bytes += more;
  while (socket && !bytes.empty()) {
    const ssize_t count =
        ::send(socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) socket.close();  // the process no longer reads
    bytes.erase(0, static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
  if (!socket) bytes.clear();
}

void ChildProcess::send(int signal) const {
  if (!status_) kill(-id_, signal);
}

}  // namespace convoy::launcher
