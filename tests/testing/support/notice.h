// An event that one process signals to another, for tests that would otherwise have to sleep.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <stdexcept>

namespace convoy::testing {

/// A counting event between processes. Create it before forking the processes that share it.
class Notice {
 public:
  Notice() {
    if (pipe2(ends_, O_CLOEXEC) != 0) throw std::runtime_error("cannot create a pipe");
  }
  ~Notice() {
    for (const int end : ends_) close(end);
  }
  Notice(const Notice&) = delete;
  Notice& operator=(const Notice&) = delete;

  /// Signals the event `times` times.
  void notify(int times = 1) const {
    for (; times > 0; --times)
      if (write(ends_[1], "!", 1) != 1) throw std::runtime_error("cannot write to the pipe");
  }

  /// Blocks until this process has received the event `times` times. Returns false if half a minute passes
  /// without one.
  [[nodiscard]] bool await(int times = 1) const {
    for (char one; times > 0; --times) {
      pollfd waiting{.fd = ends_[0], .events = POLLIN, .revents = 0};
      if (poll(&waiting, 1, 30'000) != 1 || read(ends_[0], &one, 1) != 1) return false;
    }
    return true;
  }

 private:
  int ends_[2];
};

}  // namespace convoy::testing
