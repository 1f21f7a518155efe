// Clocks and sleeps (libc.h).
#include <algorithm>
#include <ctime>

#include "tests/simulation/libc.h"

namespace simulation {
namespace {

constexpr Time kBootTime = 1000 * kSecond;  // of the steady clock at the begin: 0 often means "never"
constexpr Time kUnixTime = 1'700'000'000 * kSecond;

}  // namespace

void charge(Time base) {
  const Coroutine* const caller = self();
  if (caller == nullptr) return;
  const double jitter = 0.5 + 1e-3 * static_cast<double>(scheduler()->random(1000));
  scheduler()->spend(static_cast<Time>(static_cast<double>(base) * jitter * caller->process->host->slowness));
}

Time virtual_time(clockid_t clock, const timespec& time) {
  return time_of(time) - (clock == CLOCK_REALTIME ? kUnixTime : kBootTime);
}

}  // namespace simulation

using namespace simulation;

REPLACE(int, clock_gettime, (clockid_t clock, timespec* time)) {
  if (scheduler() == nullptr) {
    REAL(clock_gettime, clock, time);
  }
  const Time now = scheduler()->now() + (clock == CLOCK_REALTIME ? kUnixTime : kBootTime);
  *time = {.tv_sec = now / kSecond, .tv_nsec = now % kSecond};
  return 0;
}

REPLACE(int, nanosleep, (const timespec* time, timespec* left)) {
  if (self() == nullptr) {
    REAL(nanosleep, time, left);
  }
  charge(kCall);
  scheduler()->spend(time_of(*time));
  return 0;
}

REPLACE(int, clock_nanosleep, (clockid_t clock, int flags, const timespec* time, timespec* left)) {
  if (self() == nullptr) {
    REAL(clock_nanosleep, clock, flags, time, left);
  }
  charge(kCall);
  const Time sleep =
      (flags & TIMER_ABSTIME) != 0 ? virtual_time(clock, *time) - scheduler()->now() : time_of(*time);
  scheduler()->spend(std::max<Time>(sleep, 0));
  return 0;
}

REPLACE(int, sched_yield, ()) {
  if (self() == nullptr) {
    REAL(sched_yield);
  }
  charge(kCall);
  return 0;
}
