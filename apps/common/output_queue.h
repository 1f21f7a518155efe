// OutputQueue: output that no thread waits for. QueuedStream: stdout or stderr as such a queue.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

namespace convoy {

/// Writes to a descriptor on a thread of its own, so that no other thread waits for a terminal or a pipe that does not
/// read (Wait::output). Thread-safe.
class OutputQueue {
 public:
  explicit OutputQueue(int descriptor);
  /// Blocks until all texts are written, or the reader has closed its end.
  ~OutputQueue();

  /// Adds a text, usually a line with its end. Does not block. If more than 4 MiB wait, drops the oldest texts that are
  /// not `important`, but never the newest one; a line tells how many lines were dropped.
  void push(std::string text, bool important = false);
  /// Blocks until all texts are written, at most for `seconds`. After a call that has waited in vain, returns at once
  /// until the reader reads again.
  void drain(double seconds);

 private:
  struct Text {
    std::string bytes;
    bool is_important = false;
  };

  void write();

  const int descriptor_;
  std::mutex mutex_;  // guards the next six
  std::condition_variable changed_;
  std::deque<Text> texts_;
  std::size_t bytes_ = 0;    // of texts_
  std::size_t dropped_ = 0;  // lines, since the last one that tells it
  bool is_writing_ = false, is_stuck_ = false, is_ending_ = false;
  std::thread thread_;
};

/// Replaces stdout or stderr by a queue while the object exists, so that a reader that does not read stops no step of a
/// training. Does not change std::cout and std::cerr. No other thread may print while it is made or destroyed.
class QueuedStream {
 public:
  /// `stream` is stdout or stderr. With `first`, what is printed waits for each of both, at most for a second: it
  /// follows what was printed to `first`, and precedes the exit of a process that calls _exit().
  explicit QueuedStream(std::FILE*& stream, QueuedStream* first = nullptr);
  /// Blocks until all output is written, or the reader has closed its end.
  ~QueuedStream();

 private:
  ssize_t write(const char* bytes, std::size_t count) noexcept;

  OutputQueue queue_;
  std::FILE*& stream_;
  std::FILE* const direct_;
  QueuedStream* const first_;
};

}  // namespace convoy
