// Profiler: named, nested time ranges per thread, exported as Chrome trace JSON (chrome://tracing, Perfetto).
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

#include "convoy/kernels/runtime/named_range.h"

namespace convoy {

/// A collector of timed ranges. Thread-safe. A range costs two clock reads and one append under a mutex.
/// Ranges that begin while the profiler is disabled are not recorded.
class Profiler {
 public:
  using Clock = std::chrono::steady_clock;  // of all ranges

  /// Keeps at most `max_events` ranges (about 150 bytes each) for the trace, which bounds the memory of a
  /// long run. The trace states how many later ones are missing.
  explicit Profiler(std::size_t max_events = std::size_t{1} << 20) : max_events_(max_events) {}

  /// Enables or disables recording. Disabled at first.
  void enable(bool on) { enabled_ = on; }
  /// Returns whether ranges that begin now are recorded.
  bool enabled() const { return enabled_; }

  /// A scope that records the time from its construction to its destruction, if the profiler is enabled at
  /// construction. Also marks a NamedRange, whether enabled or not. Must not outlive the profiler. With a
  /// null profiler it costs one comparison.
  class Range {
   public:
    /// Begins a range of the calling thread, which also ends it.
    Range(Profiler* profiler, std::string_view name, std::string_view category = "compute");
    /// Ends the range, and records it.
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

   private:
    NamedRange named_;
    Profiler* profiler_;  // null: nothing is recorded
    std::string name_, category_;
    Clock::time_point begin_;
  };

  /// Adds a range that was timed elsewhere, as on a GPU, to the trace row named `row`.
  void add(std::string_view row, std::string name, std::string category, Clock::time_point begin,
           Clock::duration duration);

  /// Sets time 0 of the trace to now. Ranks have different clocks: if each calls this after a common barrier,
  /// their traces share a time axis, except for the time in which the barrier releases the ranks. Ranges that
  /// began earlier have negative times, which Perfetto does not show.
  void start_clock();

  /// Returns a complete trace file for this process.
  std::string chrome_trace(int process = 0, std::string_view label = "convoy") const;
  /// Returns this process's events for a trace of several processes, one per rank, with one row per thread.
  /// `process` is its number and sort index, `label` its name. The text is a comma-separated list of JSON
  /// objects.
  std::string trace_events(int process, std::string_view label) const;

 private:
  struct Event {
    std::string name, category;
    int row;
    Clock::time_point begin;
    Clock::duration duration;
  };
  void record(std::string name, std::string category, Clock::time_point begin, Clock::time_point end);
  // The caller of the following holds the mutex.
  void keep(Event event);
  int row_of_this_thread();
  int next_row() const { return static_cast<int>(rows_.size() + named_rows_.size()); }

  const std::size_t max_events_;
  std::atomic<bool> enabled_ = false;
  mutable std::mutex mutex_;
  Clock::time_point origin_ = Clock::now();
  std::vector<Event> events_;
  std::int64_t dropped_ = 0;
  std::map<std::thread::id, int> rows_;  // numbered in order of first use
  std::map<std::string, int, std::less<>> named_rows_;
  std::map<int, std::string> row_names_;
};

/// Returns a trace file, {"traceEvents": […]}, from the trace_events() of each process. Frees the argument's
/// texts as it appends them. Thread-safe.
std::string chrome_trace_of(std::vector<std::string> processes);

}  // namespace convoy
