// Locks on single bytes of a file, which need not exist. They belong to the open file description: the kernel
// releases them when its last descriptor is closed, however the process exits.
#pragma once

#include <fcntl.h>

#include <cstdint>

namespace convoy::dist {

// Offsets of the lock bytes, far behind the data of any file. kRankLocks is the first of one byte per rank, and the other
// one is held while a stale file is replaced.
constexpr std::int64_t kRankLocks = std::int64_t{1} << 40;
constexpr std::int64_t kReplaceLock = std::int64_t{1} << 41;

inline struct flock lock_of(short type, std::int64_t first, std::int64_t count) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = first;
  lock.l_len = count;
  return lock;
}

/// Locks `byte` exclusively without waiting. Returns whether it succeeded.
inline bool try_lock(int file, std::int64_t byte) {
  struct flock lock = lock_of(F_WRLCK, byte, 1);
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

/// Returns whether another open file description holds a lock on any of the bytes [first, first + count).
inline bool is_locked(int file, std::int64_t first, std::int64_t count = 1) {
  struct flock lock = lock_of(F_WRLCK, first, count);
  return fcntl(file, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

}  // namespace convoy::dist
