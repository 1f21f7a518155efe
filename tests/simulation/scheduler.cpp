#include "tests/simulation/scheduler.h"

#include <cxxabi.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/simulation/machine.h"

// Saves the registers that a function keeps on the stack, stores the stack pointer at *save, and goes on with the stack
// `load`, on which an earlier call has saved its registers.
extern "C" void simulation_switch(void** save, void* load);
asm(R"(
.text
.globl simulation_switch
.type simulation_switch, @function
simulation_switch:
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
.size simulation_switch, .-simulation_switch
)");

namespace simulation {
namespace {

constexpr std::size_t kStackBytes = std::size_t{512} << 10;  // of address space: only used pages need memory
constexpr std::size_t kGuardBytes = 4096;
constexpr Time kMaxWakeUp = 20 * kMicrosecond;  // between wake() and the time at which the coroutine runs

Scheduler* g_scheduler = nullptr;

char* new_stack() {
  void* const memory =
      mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    std::perror("simulation: no memory for a stack");
    std::abort();
  }
  return static_cast<char*>(memory);
}

}  // namespace

Scheduler* scheduler() { return g_scheduler; }
void set_scheduler(Scheduler* scheduler) { g_scheduler = scheduler; }

void Scheduler::push(Event event) {
  // Random high bits: events at the same time run in an order that depends on the seed.
  event.order = (random_() & 0xffff) << 48 | ++order_;
  events_.push_back(std::move(event));
  std::push_heap(events_.begin(), events_.end());
}

Coroutine* Scheduler::start(Process* process, std::function<void()> body) {
  auto* const coroutine = new Coroutine{.process = process, .id = ++coroutines_, .body = std::move(body)};
  if (free_stacks_.empty()) {
    coroutine->stack = new_stack();
  } else {
    coroutine->stack = free_stacks_.back();
    free_stacks_.pop_back();
  }
  // As simulation_switch() leaves a stack: six registers and the address to return to. A function begins with a stack
  // pointer of 8 modulo 16.
  auto* const top = reinterpret_cast<void**>(coroutine->stack + kStackBytes) - 2;
  top[0] = reinterpret_cast<void*>(&Scheduler::run_body);
  top[1] = nullptr;
  std::fill(top - 6, top, nullptr);
  coroutine->stack_pointer = top - 6;
  coroutine->is_blocked = true;
  process->coroutines.push_back(coroutine);
  wake(coroutine);
  return coroutine;
}

void Scheduler::run_body() {
  Scheduler& self = *g_scheduler;
  Coroutine* const coroutine = self.current_;
  coroutine->body();
  coroutine->body = nullptr;
  coroutine->has_finished = true;
  if (coroutine->joiner != nullptr) self.wake(coroutine->joiner);
  void* ignored = nullptr;
  simulation_switch(&ignored, self.own_stack_pointer_);
  std::abort();  // not reached
}

void Scheduler::at(Time time, std::function<void()> action) {
  push({.at = std::max(time, now_),
        .order = 0,
        .coroutine = nullptr,
        .wait = 0,
        .is_wake = false,
        .action = std::make_unique<std::function<void()>>(std::move(action))});
}

bool Scheduler::block(Time until) {
  Coroutine* const coroutine = current_;
  coroutine->is_blocked = true;
  coroutine->was_woken = false;
  if (until != kNever)
    push({.at = std::max(until, now_),
          .order = 0,
          .coroutine = coroutine,
          .wait = coroutine->wait,
          .is_wake = false,
          .action = nullptr});
  simulation_switch(&coroutine->stack_pointer, own_stack_pointer_);
  return coroutine->was_woken;
}

void Scheduler::wake(Coroutine* coroutine) {
  if (!coroutine->is_blocked || coroutine->was_woken) return;
  coroutine->was_woken = true;
  push({.at = now_ + static_cast<Time>(random(kMaxWakeUp)),
        .order = 0,
        .coroutine = coroutine,
        .wait = coroutine->wait,
        .is_wake = true,
        .action = nullptr});
}

// The stack is copied while the coroutine does not run on it.
bool Scheduler::save(SavedStack& saved) {
  Coroutine* const coroutine = current_;
  at(now_, [this, coroutine, &saved] {
    saved.stack_pointer = coroutine->stack_pointer;
    saved.bytes.assign(static_cast<char*>(saved.stack_pointer), coroutine->stack + kStackBytes);
    wake(coroutine);
  });
  block();
  return !saved.is_restored;
}

void Scheduler::restore(SavedStack& saved) {
  Coroutine* const coroutine = current_;
  at(now_, [this, coroutine, &saved] {
    std::copy(saved.bytes.begin(), saved.bytes.end(), static_cast<char*>(saved.stack_pointer));
    coroutine->stack_pointer = saved.stack_pointer;
    saved.is_restored = true;
    wake(coroutine);
  });
  block();
}

void Scheduler::spend(Time time) {
  const Time end = now_ + time;
  if ((!events_.empty() && events_.front().at <= end) || end >= run_until_) {
    // A call of wake() in the meantime, for a wait that is over, must not end this one.
    while (now_ < end) block(end);
  } else {
    now_ = end;
  }
}

void Scheduler::resume(Coroutine* coroutine) {
  coroutine->is_blocked = false;
  ++coroutine->wait;
  coroutine->process->enter();
  auto* const exceptions = reinterpret_cast<void**>(abi::__cxa_get_globals());
  std::copy_n(coroutine->exceptions.begin(), 2, exceptions);
  errno = coroutine->error;
  current_ = coroutine;
  simulation_switch(&own_stack_pointer_, coroutine->stack_pointer);
  current_ = nullptr;
  coroutine->error = errno;
  std::copy_n(exceptions, 2, coroutine->exceptions.begin());
  std::fill_n(exceptions, 2, nullptr);
  if (coroutine->has_finished && coroutine->stack != nullptr)
    free_stacks_.push_back(std::exchange(coroutine->stack, nullptr));
}

void Scheduler::run(Time until, const std::function<bool()>& is_done) {
  run_until_ = until;
  while (!is_done()) {
    if (events_.empty() || events_.front().at > until) {
      now_ = until;
      return;
    }
    std::pop_heap(events_.begin(), events_.end());
    Event event = std::move(events_.back());
    events_.pop_back();
    now_ = std::max(now_, event.at);
    if (event.action) {
      (*event.action)();
      continue;
    }
    Coroutine* const coroutine = event.coroutine;
    if (coroutine->has_finished || coroutine->process->has_ended || event.wait != coroutine->wait) continue;
    if (coroutine->process->is_stopped) {
      coroutine->process->frozen.push_back({coroutine, event.wait, event.is_wake});
      continue;
    }
    resume(coroutine);
  }
}

void Scheduler::thaw(Process& process) {
  for (const Process::Frozen& frozen : std::exchange(process.frozen, {}))
    push({.at = now_ + static_cast<Time>(random(kMaxWakeUp)),
          .order = 0,
          .coroutine = frozen.coroutine,
          .wait = frozen.wait,
          .is_wake = frozen.is_wake,
          .action = nullptr});
}

}  // namespace simulation
