// Of exercise seed-2: numbers that count their additions, and threads that do tasks in an order of their own.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

/// A float whose additions are counted.
struct Number {
  float value = 0;
  static inline long additions = 0;
  Number& operator+=(const Number& other) {
    value += other.value;
    ++additions;
    return *this;
  }
};

/// Threads that are simulated one after another: thread t does each task that is in place t, t + size, … of
/// the order.
class Team {
 public:
  /// `seed` chooses the order of the tasks; 0 is ascending.
  Team(int threads, unsigned seed) : threads_(threads), seed_(seed) {}
  int size() const { return threads_; }

  /// Calls f(0), … f(tasks - 1).
  template <class F>
  void run(int tasks, F f) {
    std::vector<int> order(static_cast<std::size_t>(tasks));
    std::iota(order.begin(), order.end(), 0);
    if (seed_ != 0)
      for (std::size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[(seed_ = seed_ * 1664525u + 1013904223u) / 256 % i]);
    const long before = Number::additions;
    std::vector<long> additions(static_cast<std::size_t>(threads_), 0);
    for (std::size_t i = 0; i < order.size(); ++i) {
      Number::additions = 0;
      f(order[i]);
      additions[i % additions.size()] += Number::additions;
    }
    longest_ += *std::max_element(additions.begin(), additions.end());
    Number::additions = before;
  }
  /// Returns the additions of the busiest thread, summed over all calls of run().
  long longest() const { return longest_; }

 private:
  int threads_;
  unsigned seed_;
  long longest_ = 0;
};
