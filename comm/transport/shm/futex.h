// Linux futexes on words in shared memory.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace convoy::dist {

using FutexWord = std::atomic<std::uint32_t>;
static_assert(sizeof(FutexWord) == 4 && FutexWord::is_always_lock_free);

/// Blocks until woken, for `limit` at most. Returns at once if `word` no longer equals `seen`. May wake up
/// spuriously.
inline void futex_wait(FutexWord& word, std::uint32_t seen, std::chrono::nanoseconds limit) {
  const timespec relative{.tv_sec = limit.count() / 1'000'000'000, .tv_nsec = limit.count() % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &relative, nullptr, 0);
}

/// Wakes all waiting threads of all processes.
inline void futex_wake_all(FutexWord& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace convoy::dist
