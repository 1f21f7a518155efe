#include "program.h"

#include "session.h"

void lesson::run(Case& at) {
  const int sessions = at.size(0);
  const double ratios[] = {1, 1.05, 1 / 1.05};
  int wrong[3] = {}, total = 0;
  for (int answer = 0; answer < 3; ++answer)
    for (int i = 0; i < sessions; ++i) {
      Session session(ratios[answer], at.next());
      wrong[answer] += faster(session) != answer;
      if (session.measurements() > 40)
        at.fail("it measures %d times, expected at most 40", session.measurements());
    }
  for (int each : wrong) total += each;
  if (total > sessions * 3 / 50)
    at.fail(
        "%d of %d answers are wrong, expected at most 2 %%; of %d each: %d if the programs are equal, %d if "
        "the first one is faster, %d if the second one is",
        total, 3 * sessions, sessions, wrong[0], wrong[1], wrong[2]);
}
