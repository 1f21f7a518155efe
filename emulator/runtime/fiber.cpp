#include "emulator/runtime/fiber.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#include "emulator/runtime/sanitizer.h"

#if defined(__x86_64__)

// Pushes the callee-saved registers, switches the stack pointer, and pops the registers from the other stack.
// This is 20 times as fast as swapcontext, which also makes a system call for the signal mask and makes
// AddressSanitizer clear its shadow of the whole stack. The rounding mode is callee-saved too, but nothing
// here changes it.
extern "C" void convoy_switch_stack(void** from, void* to);
asm(R"(
        .text
        .type convoy_switch_stack, @function
convoy_switch_stack:
        pushq %rbp
        pushq %rbx
        pushq %r12
        pushq %r13
        pushq %r14
        pushq %r15
        movq %rsp, (%rdi)
        movq %rsi, %rsp
        popq %r15
        popq %r14
        popq %r13
        popq %r12
        popq %rbx
        popq %rbp
        ret
        .size convoy_switch_stack, . - convoy_switch_stack
)");

namespace convoy::emulator {

struct Fiber::Context {
  void* stack_pointer = nullptr;

  void prepare(void* stack, std::size_t bytes, void (*start)()) {
    constexpr std::size_t kPreserved = 6;  // registers, initially zero: a zero frame pointer ends a backtrace
    void** top = reinterpret_cast<void**>(static_cast<char*>(stack) + bytes);
    *--top = nullptr;  // return address of `start`; aligns the stack as a call would
    *--top = reinterpret_cast<void*>(start);
    for (std::size_t i = 0; i < kPreserved; ++i) *--top = nullptr;
    stack_pointer = top;
  }
  void switch_to(Context& other) { convoy_switch_stack(&stack_pointer, other.stack_pointer); }
};

}  // namespace convoy::emulator

#else
#include <ucontext.h>

namespace convoy::emulator {

struct Fiber::Context {
  ucontext_t context{};

  void prepare(void* stack, std::size_t bytes, void (*start)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = bytes;
    context.uc_link = nullptr;
    makecontext(&context, start, 0);
  }
  void switch_to(Context& other) { swapcontext(&context, &other.context); }
};

}  // namespace convoy::emulator
#endif

namespace convoy::emulator {
namespace {
thread_local Fiber* t_entered = nullptr;  // tells start() which fiber it runs
}

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), inside_(std::make_unique<Context>()), outside_(std::make_unique<Context>()) {
  void* const pages = mmap(nullptr, kPage + kStackBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (pages == MAP_FAILED || mprotect(pages, kPage, PROT_NONE) != 0) throw std::bad_alloc();
  stack_ = static_cast<char*>(pages) + kPage;
  inside_->prepare(stack_, kStackBytes, &Fiber::start);
}

Fiber::~Fiber() {
  unpoison(stack_, kStackBytes);  // red zones of frames that never returned
  munmap(static_cast<char*>(stack_) - kPage, kPage + kStackBytes);
}

void Fiber::start() {
  Fiber& self = *t_entered;
  finish_switch(nullptr, &self.outside_stack_, &self.outside_bytes_);
  self.body_();
  std::abort();  // `body` must not return
}

void Fiber::enter() {
  t_entered = this;
  begin_switch(&outside_shadow_, stack_, kStackBytes);
  outside_->switch_to(*inside_);
  finish_switch(outside_shadow_, nullptr, nullptr);
}

void Fiber::leave() {
  begin_switch(&inside_shadow_, outside_stack_, outside_bytes_);
  inside_->switch_to(*outside_);
  finish_switch(inside_shadow_, &outside_stack_, &outside_bytes_);
}

}  // namespace convoy::emulator
