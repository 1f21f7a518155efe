#include "program.h"

void lesson::run(Case& at) {
  const int stage = at.size(0), ranks = at.size(2);
  const double parameters = 1e6 * at.size(1), n = ranks;
  const double means = stage >= 1 ? 8 / n : 8, copy = stage >= 1 ? 4 / n : 4,
               gradients = stage >= 2 ? 2 / n : 2, own = stage >= 3 ? 2 / n : 2;
  const double stored = (own + gradients + copy + means) * parameters, phase = (n - 1) / n * 2 * parameters,
               sent = (stage >= 3 ? 3 : 2) * phase;
  const Bytes found = bytes(stage, parameters, ranks);
  const auto is = [](double a, double b) { return std::fabs(a - b) <= 1e-9 * std::fabs(b); };
  if (!is(found.stored, stored))
    at.fail("found %.6g GB stored, expected %.6g GB%s", found.stored / 1e9, stored / 1e9,
            is(found.stored, stored - copy * parameters) ? ": without the copy in 32 bits"
            : is(found.stored, 16 / n * parameters)      ? ": everything is divided, which is stage 3"
            : is(found.stored, (16 - 12 * (1 - 1 / n)) * parameters) ? ": the gradients are divided, too"
                                                                     : "");
  if (!is(found.sent, sent))
    at.fail("found %.6g GB sent, expected %.6g GB%s", found.sent / 1e9, sent / 1e9,
            is(found.sent, sent - phase)         ? ": one of the phases is missing"
            : is(found.sent, 2 * sent)           ? ": parameters and gradients have 2 bytes each"
            : is(found.sent, sent * n / (n - 1)) ? ": a rank does not send its own part"
                                                 : "");
}
