#include "convoy/apps/common/signals.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <string_view>

namespace convoy {
namespace {

// A signal handler can access only objects with static storage duration.
std::atomic<int> g_received{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not wait for a lock");

std::mutex g_mutex;  // guards the variables below
int g_alive = 0;
std::array<struct sigaction, kStopSignals.size()> g_previous;

std::atomic<bool> g_announces{false};

constexpr std::string_view kAnnouncement =
    "\nfinishing this step, then saving; Ctrl-C once more quits at once, unsaved\n";

std::atomic<std::int64_t> g_checkpoint{-1};  // its step; -1: none
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal handler must not wait for a lock");

/// Prints a text, unless the reader does not read: a signal handler must not wait for it (Wait::output).
void print_now(std::string_view text) {
  pollfd writable{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&writable, 1, 0) != 1) return;
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
}

/// Prints what is lost. Calls only functions that a signal handler may call.
void print_lost_steps() {
  std::int64_t step = g_checkpoint;
  if (step < 0) return print_now("\nquit at once: there is no checkpoint, all steps are lost\n");
  std::array<char, 24> digits{};
  std::size_t begin = digits.size();
  do digits[--begin] = static_cast<char>('0' + step % 10);
  while ((step /= 10) > 0);
  print_now("\nquit at once: the newest checkpoint is that of step ");
  print_now({digits.data() + begin, digits.size() - begin});
  print_now(", later steps are lost\n");
}

void note(int signal) {
  const int saved_errno = errno;  // of the code that the signal interrupts
  const int previous = g_received.exchange(signal);
  if (previous == SIGINT && signal == SIGINT) {
    if (g_announces) print_lost_steps();
    _exit(128 + SIGINT);
  }
  if (previous == 0 && signal == SIGINT && g_announces) print_now(kAnnouncement);
  errno = saved_errno;
}

}  // namespace

StopSignals::StopSignals(bool announces) {
  const std::lock_guard lock(g_mutex);
  if (announces) g_announces = true;
  if (g_alive++ > 0) return;
  g_received = 0;
  struct sigaction action {};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // restarts interrupted reads and writes, such as those of a checkpoint
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    sigaction(kStopSignals[i], &action, &g_previous[i]);
    if (kStopSignals[i] == SIGHUP && g_previous[i].sa_handler == SIG_IGN)
      sigaction(SIGHUP, &g_previous[i], nullptr);
  }
}

StopSignals::~StopSignals() {
  const std::lock_guard lock(g_mutex);
  if (--g_alive > 0) return;
  g_announces = false;
  g_checkpoint = -1;
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) sigaction(kStopSignals[i], &g_previous[i], nullptr);
}

int StopSignals::received() { return g_received; }

void StopSignals::set_newest_checkpoint(std::int64_t step) { g_checkpoint = step; }

}  // namespace convoy
