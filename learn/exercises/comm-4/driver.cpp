#include <string>

#include "program.h"

// Returns 160000 as "160,000".
static std::string grouped(double number) {
  std::string text = std::to_string(std::llround(number));
  for (int at = static_cast<int>(text.size()) - 3; at > (text[0] == '-' ? 1 : 0); at -= 3)
    text.insert(at, ",");
  return text;
}

void lesson::run(Case& at) {
  const int n = at.size(0);
  const double alpha = at.size(1) * 1e-9, beta = 1e-6 / at.size(2), rounds = std::log2(n),
               steps = 2.0 * (n - 1);
  const double expected = alpha * (steps - rounds) / (beta * (rounds - steps / n)),
               found = crossover(n, alpha, beta);
  if (std::fabs(found / expected - 1) < 1e-9) return;
  const double doubling = rounds * (alpha + beta * found), ring = steps * (alpha + beta * found / n);
  char times[200] = "";
  if (found > 0)
    std::snprintf(times, sizeof times, ": at this size, doubling takes %.5g us and the ring takes %.5g us%s",
                  1e6 * doubling, 1e6 * ring,
                  doubling < ring ? ", n - 1 steps to add and n - 1 to gather" : "");
  at.fail("found %s bytes, expected %s%s", grouped(found).c_str(), grouped(expected).c_str(), times);
}
