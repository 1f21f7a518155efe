#include "program.h"

static float of_bits(std::uint32_t word) { return std::bit_cast<float>(word); }

void lesson::run(Case& at) {
  const std::uint32_t patterns = at.size(0);
  for (std::uint32_t i = 0; i < patterns; ++i) {
    const std::uint32_t pattern =
        i * (65536 / patterns) + (patterns < 65536 ? at.next() % (65536 / patterns) : 0);
    for (const std::uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8001u, 0xffffu, 0x8000u}) {
      const std::uint32_t word = pattern << 16 | low, found = to_bf16(of_bits(word));
      const bool is_tie = low == 0x8000;
      if ((word & 0x7fffffff) > 0x7f800000) {
        if ((found & 0x7fff) > 0x7f80) continue;
        at.fail(
            "0x%08x is NaN, and is rounded to 0x%04x, which is %g: the addition has carried into the exponent or the sign",
            word, found, static_cast<double>(of_bits(found << 16)));
      }
      const std::uint32_t expected = pattern + (low > 0x8000 || (is_tie && pattern % 2 == 1) ? 1 : 0);
      if (found != expected)
        at.fail("0x%08x (%g) is rounded to 0x%04x, expected 0x%04x%s", word,
                static_cast<double>(of_bits(word)), found, expected,
                found != pattern && found != pattern + 1 ? ""
                : is_tie       ? ": a tie, and the even pattern is the nearest other one"
                : low > 0x8000 ? ": the lower 16 bits are more than half of a step"
                               : "");
    }
  }
}
