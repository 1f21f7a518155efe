// A profiler: named, nested ranges on threads and streams, written as Chrome trace JSON (chrome://tracing, Perfetto).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace convoy {

/// Thread-safe; a range costs two clock reads and a push. Nothing is recorded while disabled.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;

  void enable(bool on);
  bool enabled() const;

  /// Records from construction to destruction. A null profiler costs one comparison.
  class Range {
   public:
    Range(Profiler* profiler, std::string_view name, std::string_view category = "compute");
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    Profiler* profiler_;
    std::string name_, category_;
    Clock::time_point begin_;
  };

  /// {"traceEvents": […]} with one process per rank (`process` is its number and label) and one row a thread.
  std::string chrome_trace(int process = 0, std::string_view label = "convoy") const;
  /// Total milliseconds and count by name, largest first.
  struct Total {
    std::string name;
    double ms = 0;
    std::int64_t count = 0;
  };
  std::vector<Total> totals() const;
  void clear();

 private:
  struct Event {
    std::string name, category;
    std::uint64_t thread;
    std::int64_t begin_us, duration_us;
  };
  mutable std::mutex mutex_;
  std::vector<Event> events_;
  bool enabled_ = false;
  Clock::time_point origin_ = Clock::now();
};

}  // namespace convoy
