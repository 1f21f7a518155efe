// Threads, and what they wait for each other with (libc.h).
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <deque>
#include <unordered_map>

#include "tests/simulation/libc.h"

namespace simulation {
namespace {

// Waiting for an address: of a mutex, of a condition variable, or of a futex word. All processes map shared memory at the
// same address.
std::unordered_map<const void*, std::deque<Coroutine*>> g_queues;

bool wait_at(const void* address, Time until) {
  Coroutine* const caller = self();
  g_queues[address].push_back(caller);
  const bool was_woken = scheduler()->block(until);
  const auto queue = g_queues.find(address);
  if (queue != g_queues.end()) {
    std::erase(queue->second, caller);
    if (queue->second.empty()) g_queues.erase(queue);
  }
  return was_woken;
}

int wake_at(const void* address, int limit) {
  const auto queue = g_queues.find(address);
  int woken = 0;
  while (queue != g_queues.end() && !queue->second.empty() && woken < limit) {
    Coroutine* const waiter = queue->second.front();
    queue->second.pop_front();
    if (waiter->process->has_ended) continue;
    scheduler()->wake(waiter);
    ++woken;
  }
  return woken;
}

long futex(std::uint32_t* word, int operation, std::uint32_t value, const timespec* time) {
  charge(kCall / 5);
  const int kind = operation & FUTEX_CMD_MASK;
  if (kind == FUTEX_WAKE || kind == FUTEX_WAKE_BITSET) return wake_at(word, static_cast<int>(value));
  if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) return fail_with(EAGAIN);
  Time until = kNever;
  if (time != nullptr && kind == FUTEX_WAIT) until = scheduler()->now() + time_of(*time);
  if (time != nullptr && kind == FUTEX_WAIT_BITSET)
    until = virtual_time((operation & FUTEX_CLOCK_REALTIME) != 0 ? CLOCK_REALTIME : CLOCK_MONOTONIC, *time);
  return wait_at(word, until) ? 0 : fail_with(ETIMEDOUT);
}

bool is_recursive(const pthread_mutex_t* mutex) {
  return (mutex->__data.__kind & 3) == PTHREAD_MUTEX_RECURSIVE;
}

void lock(pthread_mutex_t* mutex) {
  auto& data = mutex->__data;
  if (is_recursive(mutex) && data.__lock != 0 && data.__owner == self()->id) {
    ++data.__count;
    return;
  }
  while (data.__lock != 0) wait_at(mutex, kNever);
  data.__lock = 1;
  data.__owner = self()->id;
}

void unlock(pthread_mutex_t* mutex) {
  auto& data = mutex->__data;
  if (is_recursive(mutex) && data.__count > 0) {
    --data.__count;
    return;
  }
  data.__lock = 0;
  data.__owner = 0;
  wake_at(mutex, 1);
}

int wait_for_condition(pthread_cond_t* condition, pthread_mutex_t* mutex, Time until) {
  unlock(mutex);
  const bool was_woken = wait_at(condition, until);
  lock(mutex);
  return was_woken ? 0 : ETIMEDOUT;
}

}  // namespace
}  // namespace simulation

using namespace simulation;

REPLACE(int, pthread_create,
        (pthread_t * thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument)) {
  if (self() == nullptr) {
    REAL(pthread_create, thread, attributes, body, argument);
  }
  charge(kFileCall);
  *thread = reinterpret_cast<pthread_t>(scheduler()->start(self()->process, [=] { body(argument); }));
  return 0;
}

REPLACE(int, pthread_join, (pthread_t thread, void** result)) {
  if (self() == nullptr) {
    REAL(pthread_join, thread, result);
  }
  auto* const other = reinterpret_cast<Coroutine*>(thread);
  other->joiner = self();
  while (!other->has_finished) scheduler()->block();
  return 0;
}

REPLACE(int, pthread_detach, (pthread_t thread)) {
  if (self() == nullptr) {
    REAL(pthread_detach, thread);
  }
  return 0;
}

REPLACE(pthread_t, pthread_self, ()) {
  if (self() == nullptr) {
    REAL(pthread_self);
  }
  return reinterpret_cast<pthread_t>(self());
}

REPLACE(int, pthread_mutex_lock, (pthread_mutex_t * mutex)) {
  if (self() == nullptr) {
    REAL(pthread_mutex_lock, mutex);
  }
  lock(mutex);
  return 0;
}

REPLACE(int, pthread_mutex_trylock, (pthread_mutex_t * mutex)) {
  if (self() == nullptr) {
    REAL(pthread_mutex_trylock, mutex);
  }
  if (mutex->__data.__lock != 0) return EBUSY;
  lock(mutex);
  return 0;
}

REPLACE(int, pthread_mutex_unlock, (pthread_mutex_t * mutex)) {
  if (self() == nullptr) {
    REAL(pthread_mutex_unlock, mutex);
  }
  unlock(mutex);
  return 0;
}

REPLACE(int, pthread_cond_wait, (pthread_cond_t * condition, pthread_mutex_t* mutex)) {
  if (self() == nullptr) {
    REAL(pthread_cond_wait, condition, mutex);
  }
  return wait_for_condition(condition, mutex, kNever);
}

REPLACE(int, pthread_cond_timedwait,
        (pthread_cond_t * condition, pthread_mutex_t* mutex, const timespec* time)) {
  if (self() == nullptr) {
    REAL(pthread_cond_timedwait, condition, mutex, time);
  }
  return wait_for_condition(condition, mutex, virtual_time(CLOCK_REALTIME, *time));
}

REPLACE(int, pthread_cond_clockwait,
        (pthread_cond_t * condition, pthread_mutex_t* mutex, clockid_t clock, const timespec* time)) {
  if (self() == nullptr) {
    REAL(pthread_cond_clockwait, condition, mutex, clock, time);
  }
  return wait_for_condition(condition, mutex, virtual_time(clock, *time));
}

REPLACE(int, pthread_cond_signal, (pthread_cond_t * condition)) {
  if (self() == nullptr) {
    REAL(pthread_cond_signal, condition);
  }
  wake_at(condition, 1);
  return 0;
}

REPLACE(int, pthread_cond_broadcast, (pthread_cond_t * condition)) {
  if (self() == nullptr) {
    REAL(pthread_cond_broadcast, condition);
  }
  wake_at(condition, INT32_MAX);
  return 0;
}

/// For the stack of a thread. The ids are simulated, but a real process may have the same.
REPLACE(int, tgkill, (pid_t process, pid_t thread, int number)) {
  if (self() == nullptr) {
    REAL(tgkill, process, thread, number);
  }
  return fail_with(ESRCH);
}

extern "C" long replaced_syscall(long number, ...) asm("syscall");
long replaced_syscall(long number, ...) {
  std::va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (self() != nullptr && number == SYS_futex)
    return futex(reinterpret_cast<std::uint32_t*>(arguments[0]), static_cast<int>(arguments[1]),
                 static_cast<std::uint32_t>(arguments[2]), reinterpret_cast<const timespec*>(arguments[3]));
  if (self() != nullptr && number == SYS_pidfd_open) {
    auto* const file = new ProcessFile;
    file->process = network()->find_process(static_cast<int>(arguments[0]));
    file->process->on_end.push_back([file] { file->notify(); });
    return network()->open(self()->process, file);
  }
  static auto* const real = next<long(long, ...)>("syscall");
  return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}
