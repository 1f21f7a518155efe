// Processes: how they start, what ends them, and signals (libc.h).
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdarg>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/libc.h"

namespace simulation {
namespace {

constexpr Time kForkCall = 300 * kMicrosecond, kExecuteCall = kMillisecond;

/// Lets the coroutine of a child between fork() and execve() go on as the parent, where it called fork().
[[noreturn]] void return_to_parent() {
  Process* const child = self()->process;
  self()->process = child->parent;
  scheduler()->restore(*child->forked_at);
  std::abort();  // not reached
}

}  // namespace
}  // namespace simulation

using namespace simulation;

REPLACE(pid_t, getpid, ()) {
  if (self() == nullptr) {
    REAL(getpid);
  }
  return self()->process->pid;
}

REPLACE(pid_t, getppid, ()) {
  if (self() == nullptr) {
    REAL(getppid);
  }
  const Process* const parent = self()->process->parent;
  return parent == nullptr || parent->has_ended ? 1 : parent->pid;
}

/// The coroutine becomes that of the child, on a stack that is copied, until execve() or _exit().
REPLACE(pid_t, fork, ()) {
  if (self() == nullptr) {
    REAL(fork);
  }
  charge(kForkCall);
  Process* const parent = self()->process;
  Process* const child = network()->add_process(parent->host, parent->name + ", child");
  child->parent = parent;
  child->streams = parent->streams;
  for (File* const stream : child->streams)
    if (stream != nullptr) ++stream->references;
  child->forked_at = std::make_unique<SavedStack>();
  self()->process = child;
  return scheduler()->save(*child->forked_at) ? 0 : child->pid;
}

REPLACE(int, execve, (const char* path, char* const* arguments, char* const* variables)) {
  if (self() == nullptr) {
    REAL(execve, path, arguments, variables);
  }
  charge(kExecuteCall);
  Process* const process = self()->process;
  std::vector<std::string> words, lines;
  for (; *arguments != nullptr; ++arguments) words.emplace_back(*arguments);
  for (; *variables != nullptr; ++variables) lines.emplace_back(*variables);
  process->set_environment(std::move(lines));
  if (!process->has_ended) network()->execute(process, words);
  return_to_parent();
}

extern "C" [[noreturn]] void replaced_exit(int code) asm("_exit");
void replaced_exit(int code) {
  if (self() != nullptr) {
    Process* const process = self()->process;
    process->end((code & 0xff) << 8);
    if (process->forked_at != nullptr && !process->forked_at->is_restored) return_to_parent();
    scheduler()->block();  // for ever
  }
  next<void(int)>("_Exit")(code);
  std::abort();  // not reached
}

REPLACE(pid_t, waitpid, (pid_t id, int* status, int options)) {
  Process* const process = self() == nullptr ? nullptr : network()->find_process(id);
  if (process == nullptr) {
    REAL(waitpid, id, status, options);
  }
  charge(kCall);
  constexpr int kStoppedBySignal = (SIGSTOP << 8) | 0x7f,
                kContinued = 0xffff;  // as WIFSTOPPED and WIFCONTINUED read them
  while (!process->has_ended) {
    const bool is_stopped = process->is_stopped;
    const int change = is_stopped ? WUNTRACED : WCONTINUED;
    if ((options & change) != 0 && process->was_reported_stopped != is_stopped) {
      process->was_reported_stopped = is_stopped;
      if (status != nullptr) *status = is_stopped ? kStoppedBySignal : kContinued;
      return id;
    }
    if ((options & WNOHANG) != 0) return 0;
    scheduler()->spend(kMillisecond);
  }
  process->reaped_at = scheduler()->now();
  if (status != nullptr) *status = process->status;
  return id;
}

/// A process of the simulation has a process group of its own.
REPLACE(int, kill, (pid_t id, int signal)) {
  Process* const process = self() == nullptr ? nullptr : network()->find_process(std::abs(id));
  if (process == nullptr) {
    REAL(kill, id, signal);
  }
  charge(kCall);
  if (signal == SIGKILL)
    process->end(SIGKILL);
  else
    process->stop_signal = signal;
  return 0;
}

REPLACE(int, setpgid, (pid_t id, pid_t group)) {
  if (self() == nullptr) {
    REAL(setpgid, id, group);
  }
  return 0;
}

REPLACE(int, prctl, (int option, ...)) {
  std::va_list list;
  va_start(list, option);
  unsigned long arguments[4];
  for (unsigned long& argument : arguments) argument = va_arg(list, unsigned long);
  va_end(list);
  if (self() == nullptr || option != PR_SET_PDEATHSIG) {
    REAL(prctl, option, arguments[0], arguments[1], arguments[2], arguments[3]);
  }
  self()->process->dies_with_parent = true;
  return 0;
}

// Signals reach a simulated process as StopSignals::received().
REPLACE(int, sigaction, (int signal, const struct sigaction* action, struct sigaction* before)) {
  if (self() == nullptr) {
    REAL(sigaction, signal, action, before);
  }
  if (before != nullptr) *before = {};
  return 0;
}

REPLACE(sighandler_t, signal, (int number, sighandler_t handler)) {
  if (self() == nullptr) {
    REAL(signal, number, handler);
  }
  return SIG_DFL;
}

REPLACE(int, chdir, (const char* path)) {
  if (self() == nullptr) {
    REAL(chdir, path);
  }
  return 0;
}

/// std::random_device::_M_getval(), so that tokens depend on the seed.
extern "C" unsigned replaced_random(void* device) asm("_ZNSt13random_device9_M_getvalEv");
unsigned replaced_random(void* device) {
  if (scheduler() == nullptr) return next<unsigned(void*)>("_ZNSt13random_device9_M_getvalEv")(device);
  return static_cast<unsigned>(scheduler()->random(std::uint64_t{1} << 32));
}
