#include <algorithm>
#include <vector>

#include "team.h"

// Returns the sum of x. A Number is a float whose additions are counted; a new one is 0. team.run(n, f) calls
// f(0), … f(n - 1) with team.size() threads, in an order of its own, some of them at the same time, and
// returns when all have ended.
//
// This version is right, and one thread does all. TODO: let all threads add. The bits of the sum depend on x
// only.
Number sum(const std::vector<Number>& x, Team& team) {
  Number total;
  for (const Number& each : x) total += each;
  return total;
}
