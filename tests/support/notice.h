// An event that one process tells another of, where a sleep would only hope for it.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <stdexcept>

namespace convoy::testing {

/// To be made before the processes are forked that share it.
class Notice {
 public:
  Notice() {
    if (pipe2(ends_, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
  }
  ~Notice() {
    for (const int end : ends_) close(end);
  }
  Notice(const Notice&) = delete;
  Notice& operator=(const Notice&) = delete;

  void give(int times = 1) const {
    for (; times > 0; --times)
      if (write(ends_[1], "!", 1) != 1) throw std::runtime_error("a notice cannot be given");
  }

  /// Whether it was given so often, to this process; false where half a minute passes without.
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
