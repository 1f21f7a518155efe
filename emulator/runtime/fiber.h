// A fiber: a function with its own stack that can be suspended and resumed on a host thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace convoy::emulator {

/// A function that can suspend itself. AddressSanitizer is notified of every switch, so it checks the code on
/// fibers too.
class Fiber {
 public:
  /// Creates a fiber that runs `body` at the first enter(). `body` must not return; it calls leave() instead.
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Resumes the fiber, or starts it. Returns at its next leave(). Called from outside the fiber.
  void enter();
  /// Suspends the fiber. Called from inside the fiber.
  void leave();
  const char* stack() const { return static_cast<const char*>(stack_); }

  static constexpr std::size_t kStackBytes = std::size_t{256} << 10;  // sanitizers make stack frames large

 private:
  struct Context;       // the saved registers of one side
  static void start();  // entry point of every fiber

  static constexpr std::size_t kPage = 4096;  // guard page: a stack overflow raises a signal

  void* stack_;  // lowest address of the stack, after the guard page
  std::function<void()> body_;
  std::unique_ptr<Context> inside_, outside_;
  void* inside_shadow_ = nullptr;  // AddressSanitizer's state of the suspended side
  void* outside_shadow_ = nullptr;
  const void* outside_stack_ = nullptr;  // of the last caller of enter(); it may be another thread each time
  std::size_t outside_bytes_ = 0;
};

}  // namespace convoy::emulator
