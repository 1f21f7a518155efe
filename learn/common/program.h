// Helpers of the drivers of exercises in plain C++ (exercises/*/driver.cpp).
#pragma once

#include <cmath>

#include "case.h"

namespace lesson {

/// One run of the learner's functions.
class Case : public BasicCase {
 public:
  using BasicCase::BasicCase;

  /// Compares n numbers with the expected ones for equality, and reports the first that differs. `why` may say what the
  /// wrong value suggests.
  template <class T, class U>
  void compare(const char* name, const T& actual, const U& expected, const char* why = "") const {
    int wrong = 0, first = -1;
    const int n = static_cast<int>(expected.size());
    for (int i = 0; i < n; ++i)
      if (!(actual[static_cast<std::size_t>(i)] == expected[static_cast<std::size_t>(i)])) {
        if (first < 0) first = i;
        ++wrong;
      }
    if (wrong == 0) return;
    fail("%s[%d] is %g, expected %g%s%s; %d of %d %s wrong", name, first,
         static_cast<double>(actual[static_cast<std::size_t>(first)]),
         static_cast<double>(expected[static_cast<std::size_t>(first)]), *why == '\0' ? "" : ": ", why, wrong,
         n, n == 1 ? "element is" : "elements are");
  }
};

/// The driver's part: calls the learner's functions, compares.
void run(Case& at);

}  // namespace lesson

int main(int count, char** arguments) {
  return lesson::run_cases<lesson::Case>(count, arguments, lesson::run);
}
