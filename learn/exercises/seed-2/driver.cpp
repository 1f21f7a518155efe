#include "program.h"

void lesson::run(Case& at) {
  std::vector<Number> x(at.size(0));
  double exact = 0;
  for (Number& each : x) {
    each.value = static_cast<float>(at.next() % 1000000 + 1) / 999983;
    exact += static_cast<double>(each.value);
  }
  Team one(1, 0);
  const double first = sum(x, one).value;
  if (std::fabs(first - exact) > 1e-4 * exact) at.fail("the sum is %.9g, expected about %.9g", first, exact);
  for (int threads = 2; threads <= 9; ++threads) {
    Team team(threads, 0), other(threads, 1 + at.next() % 1000);
    const double found = sum(x, team).value, again = sum(x, other).value;
    if (found != again)
      at.find("CE404", "%d threads add %.9g, and %.9g if they end in another order", threads, found, again);
    if (found != first)
      at.find("CE404",
              "%d threads add %.9g, one adds %.9g: what is added together depends on the number of threads",
              threads, found, first);
  }
  Team team(4, 0);
  Number::additions = 0;
  sum(x, team);
  at.count("additions_in_a_row", static_cast<double>(team.longest() + Number::additions));
}
