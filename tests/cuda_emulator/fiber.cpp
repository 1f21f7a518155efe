#include "tests/cuda_emulator/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#include "tests/cuda_emulator/sanitizer.h"

namespace convoy::emulator {

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {
  stack_ = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stack_ == MAP_FAILED) throw std::bad_alloc();
  prepare();
}

Fiber::~Fiber() { munmap(stack_, kStackBytes); }

void Fiber::prepare() {
  getcontext(&inside_);
  inside_.uc_stack.ss_sp = stack_;
  inside_.uc_stack.ss_size = kStackBytes;
  inside_.uc_link = nullptr;
  const auto self = reinterpret_cast<std::uintptr_t>(this);  // makecontext passes ints alone
  makecontext(&inside_, reinterpret_cast<void (*)()>(&Fiber::start), 2, static_cast<unsigned>(self >> 32),
              static_cast<unsigned>(self));
}

void Fiber::start(unsigned high, unsigned low) {
  auto* const self = reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(high) << 32 | low);
  finish_switch(nullptr, &self->outside_stack_, &self->outside_bytes_);
  self->body_();
  std::abort();  // there is nowhere to return to
}

void Fiber::enter() {
  begin_switch(&outside_shadow_, stack_, kStackBytes);
  swapcontext(&outside_, &inside_);
  finish_switch(outside_shadow_, nullptr, nullptr);
}

void Fiber::leave() {
  begin_switch(&inside_shadow_, outside_stack_, outside_bytes_);
  swapcontext(&inside_, &outside_);
  finish_switch(inside_shadow_, &outside_stack_, &outside_bytes_);
}

void Fiber::abandon() {
  unpoison(stack_, kStackBytes);  // the guards between the variables of frames that never returned
  prepare();
}

}  // namespace convoy::emulator
