// Fibers: functions that can stop half-way and go on later, each on a stack of its own, all on one thread of
// the host. AddressSanitizer is told of every switch, so it checks what runs on them.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace convoy::emulator {

class Fiber {
 public:
  /// `body` never returns; it calls leave() where it has nothing to do.
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Into the fiber, from outside: goes on where it left, or begins. Returns at its next leave().
  void enter();
  /// Out of the fiber, from inside.
  void leave();

 private:
  struct Context;       // where a side stopped
  static void start();  // what a fiber runs first

  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;  // sanitizers make large frames
  static constexpr std::size_t kPage = 4096;                          // an overflow ends in it, with a signal

  void* stack_;  // its lowest byte, after the page
  std::function<void()> body_;
  std::unique_ptr<Context> inside_, outside_;
  void* inside_shadow_ = nullptr;  // AddressSanitizer's state of the side that does not run
  void* outside_shadow_ = nullptr;
  const void* outside_stack_ = nullptr;  // of whoever entered last, who may be another thread each time
  std::size_t outside_bytes_ = 0;
};

}  // namespace convoy::emulator
