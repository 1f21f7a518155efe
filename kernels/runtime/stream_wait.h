// StreamWait: for how long a thread has waited for streams, and so for other ranks.
#pragma once

#include <chrono>

namespace convoy {

/// Adds its lifetime to `total`. Event::wait() and CpuStream::synchronize() have one.
struct StreamWait {
  StreamWait() = default;
  ~StreamWait() { total += std::chrono::steady_clock::now() - begin; }
  StreamWait(const StreamWait&) = delete;
  StreamWait& operator=(const StreamWait&) = delete;

  const std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  static inline thread_local std::chrono::nanoseconds total{0};  // of the calling thread
};

}  // namespace convoy
