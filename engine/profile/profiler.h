// A profiler: named, nested ranges on threads, written as Chrome trace JSON (chrome://tracing, Perfetto).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "kernels/runtime/named_range.h"

namespace convoy {

/// Thread-safe; a range costs two clock reads and a push. Nothing is recorded while disabled.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;

  /// max_events: ranges that the trace keeps (about 150 bytes each), so that a long run's memory has a bound;
  /// later ones still count in totals(), and the trace says how many it lacks.
  explicit Profiler(std::size_t max_events = std::size_t{1} << 20) : max_events_(max_events) {}

  void enable(bool on) { enabled_ = on; }
  bool enabled() const { return enabled_; }

  /// Records from construction to destruction where the profiler was enabled at construction; always a
  /// NamedRange, too. Must not outlive the profiler. A null profiler costs one comparison.
  class Range {
   public:
    Range(Profiler* profiler, std::string_view name, std::string_view category = "compute");
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    NamedRange named_;
    Profiler* profiler_;  // null: nothing is recorded
    std::string name_, category_;
    Clock::time_point begin_;
  };

  /// Labels the calling thread's row: "loader 2".
  void name_thread(std::string name);

  /// A span that somebody else has timed (a GPU's), on a row of this name. In the trace alone: in totals() it
  /// would count beside the host's ranges of the same work.
  void add(std::string_view row, std::string name, std::string category, Clock::time_point begin,
           Clock::duration duration);

  /// Time 0 of the trace is now. For ranks, whose clocks differ, to call when they leave a common barrier:
  /// then their traces have one axis, up to what the barrier takes to let everybody go. What has begun before
  /// has a negative time, and Perfetto does not show it.
  void start_clock();

  /// A trace file of this process alone.
  std::string chrome_trace(int process = 0, std::string_view label = "convoy") const;
  /// What it adds to a trace of several processes, one per rank (`process` is its number and place, and label
  /// its name), with one row a thread: JSON objects, with commas between them.
  std::string trace_events(int process, std::string_view label) const;
  /// Total milliseconds and count by name, largest first. A range counts the ranges within it.
  struct Total {
    std::string name;
    double ms = 0;
    std::int64_t count = 0;
  };
  std::vector<Total> totals() const;
  /// Forgets all ranges; rows keep their numbers and names.
  void clear();

 private:
  struct Event {
    std::string name, category;
    int row;
    Clock::time_point begin;
    Clock::duration duration;
  };
  struct Sum {
    Clock::duration time{};
    std::int64_t count = 0;
  };
  void record(std::string name, std::string category, Clock::time_point begin, Clock::time_point end);
  // With the mutex held:
  void keep(Event event);
  int row_of_this_thread();
  int next_row() const { return static_cast<int>(rows_.size() + named_rows_.size()); }

  const std::size_t max_events_;
  std::atomic<bool> enabled_ = false;
  mutable std::mutex mutex_;
  Clock::time_point origin_ = Clock::now();
  std::vector<Event> events_;
  std::int64_t dropped_ = 0;
  std::map<std::string, Sum> sums_;
  std::map<std::thread::id, int> rows_;  // small numbers, in order of first appearance
  std::map<std::string, int, std::less<>> named_rows_;
  std::map<int, std::string> row_names_;
};

/// The trace file, {"traceEvents": […]}, of what each process adds to it; the texts are given up.
std::string chrome_trace_of(std::vector<std::string> processes);

}  // namespace convoy
