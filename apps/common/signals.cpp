#include "convoy/apps/common/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <mutex>

namespace convoy {
namespace {

// A signal handler can access only objects with static storage duration.
std::atomic<int> g_received{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler must not wait for a lock");

std::mutex g_mutex;  // guards the variables below
int g_alive = 0;
struct sigaction g_previous_int, g_previous_term;

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
  sigaction(SIGINT, &action, &g_previous_int);
  sigaction(SIGTERM, &action, &g_previous_term);
}

StopSignals::~StopSignals() {
  const std::lock_guard lock(g_mutex);
  if (--g_alive > 0) return;
  sigaction(SIGINT, &g_previous_int, nullptr);
  sigaction(SIGTERM, &g_previous_term, nullptr);
}

int StopSignals::received() { return g_received; }

}  // namespace convoy
