// Tells the emulator's own accesses from those of a program.
#pragma once

#include <utility>

namespace convoy::emulator {

/// While it exists, the running thread executes code of the emulator, or of the program if `is_own` is false.
/// The two share templates of the standard library: the linker may take the one that was compiled for checks.
/// Its accesses count only in the program. A fiber that a kernel's thread leaves and enters is in own code at
/// both ends.
class OwnCode {
 public:
  explicit OwnCode(bool is_own = true) : outer_(std::exchange(is_running_, is_own)) {}
  ~OwnCode() { is_running_ = outer_; }
  OwnCode(const OwnCode&) = delete;
  OwnCode& operator=(const OwnCode&) = delete;
  static bool is_running() { return is_running_; }

 private:
  inline static thread_local bool is_running_ = false;
  const bool outer_;
};

}  // namespace convoy::emulator
