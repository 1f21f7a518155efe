// Coroutines on one thread of the operating system, and the virtual time in which they run.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <vector>

namespace simulation {

struct Process;

/// Nanoseconds of virtual time since the begin of the simulation.
using Time = std::int64_t;
inline constexpr Time kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;
inline constexpr Time kNever = std::numeric_limits<Time>::max();

/// A simulated thread: a stack, and what C++ and C keep for each thread.
struct Coroutine {
  Process* process = nullptr;
  int id = 0;
  std::function<void()> body;
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  std::array<void*, 2> exceptions{};  // __cxa_get_globals(): those that are being handled
  int error = 0;                      // errno
  std::uint64_t wait = 0;             // number of the current wait: later events of an earlier one are void
  bool is_blocked = false;
  bool was_woken = false;  // by wake(), not by the time
  bool has_finished = false;
  Coroutine* joiner = nullptr;
};

/// Where a coroutine was, and its stack then.
struct SavedStack {
  void* stack_pointer = nullptr;
  std::vector<char> bytes;
  bool is_restored = false;
};

/// Runs coroutines in the order of virtual time, which passes only while all of them wait. Events at the same time run
/// in an order that the seed chooses. Process says which coroutines are frozen or gone.
class Scheduler {
 public:
  explicit Scheduler(std::uint64_t seed) : random_(seed) {}

  /// Returns the virtual time.
  Time now() const { return now_; }
  /// Returns the coroutine that runs; null in an event, and outside of the simulation.
  Coroutine* current() const { return current_; }
  /// Returns a number of [0, limit), which depends on the seed alone.
  std::uint64_t random(std::uint64_t limit) { return random_() % limit; }

  /// Creates a coroutine that starts now.
  Coroutine* start(Process* process, std::function<void()> body);
  /// Calls `action` at this time, in no coroutine.
  void at(Time time, std::function<void()> action);

  /// Blocks the current coroutine until wake(), or until the time. Returns whether it was woken.
  bool block(Time until = kNever);
  /// Ends the wait of a coroutine, a moment later.
  void wake(Coroutine* coroutine);
  /// Saves where the current coroutine is. Returns true, and false once it goes on from here again.
  bool save(SavedStack& saved);
  /// Lets the current coroutine go on from save(). Does not return.
  void restore(SavedStack& saved);
  /// Lets the current coroutine run for this time, in which others run too.
  void spend(Time time);

  /// Runs until nothing is left to do, or is_done() returns true, or the time is reached.
  void run(Time until, const std::function<bool()>& is_done);
  /// Lets the events of a process that was stopped, and that came in the meantime, happen now.
  void thaw(Process& process);
  /// Returns the number of events so far.
  std::uint64_t events() const { return order_; }

 private:
  struct Event {
    Time at;
    std::uint64_t order;  // of events at the same time
    Coroutine* coroutine;
    std::uint64_t wait;
    bool is_wake;
    std::unique_ptr<std::function<void()>> action;
    bool operator<(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  friend struct Process;

  void push(Event event);
  void resume(Coroutine* coroutine);
  static void run_body();

  std::mt19937_64 random_;
  Time now_ = 0, run_until_ = 0;
  std::uint64_t order_ = 0;
  std::vector<Event> events_;  // a heap
  Coroutine* current_ = nullptr;
  void* own_stack_pointer_ = nullptr;
  std::vector<char*> free_stacks_;
  int coroutines_ = 0;
};

/// Returns the scheduler of this process; null outside of a simulation.
Scheduler* scheduler();
/// Sets what scheduler() returns.
void set_scheduler(Scheduler* scheduler);

}  // namespace simulation
