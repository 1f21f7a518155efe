#include "convoy/apps/common/signals.h"

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <mutex>

namespace convoy {
namespace {

// A signal handler can access only objects with static storage duration.
std::atomic<int> g_received{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not wait for a lock");

std::mutex g_mutex;  // guards the variables below
int g_alive = 0;
std::array<struct sigaction, kStopSignals.size()> g_previous;

void note(int signal) {
  if (g_received.exchange(signal) == SIGINT && signal == SIGINT) _exit(128 + SIGINT);
}

}  // namespace

StopSignals::StopSignals() {
  const std::lock_guard lock(g_mutex);
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
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) sigaction(kStopSignals[i], &g_previous[i], nullptr);
}

int StopSignals::received() { return g_received; }

}  // namespace convoy
