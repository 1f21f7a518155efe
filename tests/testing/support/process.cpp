#include "tests/testing/support/process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <thread>

namespace convoy::testing {
namespace {

std::string read_all(std::FILE* file) {
  std::rewind(file);
  std::string text;
  char buffer[4096];
  for (std::size_t count; (count = std::fread(buffer, 1, sizeof buffer, file)) > 0;)
    text.append(buffer, count);
  return text;
}

std::FILE* temporary_file() {
  std::FILE* file = std::tmpfile();
  if (file == nullptr) throw std::runtime_error("cannot create a temporary file");
  return file;
}

}  // namespace

Process::Process(const std::vector<std::string>& arguments, const ProcessOptions& options)
    : out_(temporary_file()), err_(temporary_file()) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::FILE* input = temporary_file();
  std::fwrite(options.input.data(), 1, options.input.size(), input);
  std::fflush(input);
  ::lseek(fileno(input), 0, SEEK_SET);
  id_ = ::fork();
  if (id_ == 0) {
    ::dup2(fileno(input), STDIN_FILENO);
    ::dup2(fileno(out_), STDOUT_FILENO);
    ::dup2(fileno(err_), STDERR_FILENO);
    for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
    if (options.max_file_bytes > 0) {
      const auto limit = static_cast<rlim_t>(options.max_file_bytes);
      const rlimit file_size{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &file_size);
    }
    if (!options.directory.empty() && ::chdir(options.directory.c_str()) != 0) ::_exit(126);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  std::fclose(input);
  if (id_ < 0) throw std::runtime_error("fork failed");
}

Process::~Process() {
  if (running()) {
    send(SIGKILL);
    ::waitpid(id_, &status_, 0);
  }
  std::fclose(out_);
  std::fclose(err_);
}

void Process::send(int signal) const { ::kill(id_, signal); }

bool Process::running() {
  if (!ended_ && ::waitpid(id_, &status_, WNOHANG) == id_) ended_ = true;
  return !ended_;
}

ProcessResult Process::wait(std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (running()) {
    if (std::chrono::steady_clock::now() > deadline) send(SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ProcessResult result;
  if (WIFEXITED(status_)) result.exit_code = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) result.signal = WTERMSIG(status_);
  result.out = read_all(out_);
  result.err = read_all(err_);
  return result;
}

ProcessResult run_program(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  return Process(arguments, options).wait();
}

bool may_mount() {
  static const bool may =
      run_program({"/usr/bin/unshare", "--mount", "mount", "-t", "tmpfs", "none", "/tmp"}).exit_code == 0;
  return may;
}

}  // namespace convoy::testing
