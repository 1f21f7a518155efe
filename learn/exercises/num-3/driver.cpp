#include "program.h"

void lesson::run(Case& at) {
  const int interval = at.size(0), kind = at.size(1);
  Scaler scaler(interval);
  double scale = 65536, across = 65536, forever = 65536;  // right, and with two mistakes
  int good = 0, good_across = 0, good_forever = 0;
  for (int step = 1; step <= 12 * interval + 60; ++step) {
    const bool has_overflow = kind == 2 ? step % (3 * interval - 1) == interval - 1
                                        : kind == 3 && (step > 40 ? step % 5 == 0 : true);
    const bool is_taken = scaler.update(has_overflow);
    if (has_overflow) {
      scale = std::fmax(scale / 2, 1), across = std::fmax(across / 2, 1), forever = std::fmax(forever / 2, 1);
      good = 0, good_forever = 0;
    } else {
      if (++good == interval) scale *= 2, good = 0;
      if (++good_across == interval) across *= 2, good_across = 0;
      if (++good_forever >= interval) forever *= 2;
    }
    if (is_taken && has_overflow)
      at.fail("step %d: the step was taken, with gradients that are infinite", step);
    if (!is_taken && !has_overflow) at.fail("step %d: the step was not taken, without an overflow", step);
    if (scaler.scale() == scale) continue;
    at.fail(
        "after step %d the scale is %.10g, expected %.10g%s", step, scaler.scale(), scale,
        scaler.scale() < 1          ? ": it is never less"
        : scaler.scale() == across  ? ": the steps without an overflow are counted from 0 after each overflow"
        : scaler.scale() == forever ? ": the steps without an overflow are counted from 0 after each growth"
                                    : "");
  }
}
