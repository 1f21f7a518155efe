// Fibers: functions that can stop half-way and go on later, each on a stack of its own, all on one thread of
// the host. AddressSanitizer is told of every switch, so it checks what runs on them.
#pragma once

#include <ucontext.h>

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
  /// Forgets where it stopped: the next enter() begins anew. What lay on its stack is not destroyed.
  void abandon();

 private:
  static void start(unsigned high, unsigned low);
  void prepare();

  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;  // sanitizers make large frames
  std::function<void()> body_;
  void* stack_;
  ucontext_t inside_{};
  ucontext_t outside_{};
  void* inside_shadow_ = nullptr;  // AddressSanitizer's state of the side that does not run
  void* outside_shadow_ = nullptr;
  const void* outside_stack_ = nullptr;
  std::size_t outside_bytes_ = 0;
};

}  // namespace convoy::emulator
