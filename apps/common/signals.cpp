#include "convoy/apps/common/signals.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
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

/// Prints a text, unless the reader does not read: a signal handler must not wait for it (Wait::output).
void print_now(std::string_view text) {
  pollfd writable{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  if (poll(&writable, 1, 0) != 1) return;
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text.data(), text.size());
}

void note(int signal) {
  const int saved_errno = errno;  // of the code that the signal interrupts
  const int previous = g_received.exchange(signal);
  if (previous == SIGINT && signal == SIGINT) _exit(128 + SIGINT);
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
    sigaction(kStopSignals[i], nullptr, &g_previous[i]);  // asked first: the signal may arrive at any time
    if (kStopSignals[i] == SIGHUP && g_previous[i].sa_handler == SIG_IGN) continue;
    sigaction(kStopSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  const std::lock_guard lock(g_mutex);
  if (--g_alive > 0) return;
  g_announces = false;
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) sigaction(kStopSignals[i], &g_previous[i], nullptr);
}

int StopSignals::received() { return g_received; }

}  // namespace convoy
