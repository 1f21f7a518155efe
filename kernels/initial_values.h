// Random initial values of parameters. They are computed on the CPU only; other devices receive copies.
#pragma once

#include <cstdint>

#include "convoy/kernels/base/random.h"
#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

// out[j] = scale * number j, rounded once to the type of out, f32 or f64. Numbers 2 i and 2 i + 1 are
// computed from random.words(i, key). All arithmetic is in double and uses only additions, multiplications,
// divisions and square roots with IEEE 754 rounding. The bits thus do not depend on the processor, the C
// library or the number of threads.

/// Fills `out` with numbers of the standard normal distribution times `scale` (Box and Muller, "A note on the
/// generation of random normal deviates", 1958). The absolute value of each number before scaling is at most
/// 8.58.
void draw_normal(CpuStream& stream, const Random& random, std::uint32_t key, double scale, View out);

/// Fills `out` with uniform numbers in [-1, 1) times `scale`.
void draw_uniform(CpuStream& stream, const Random& random, std::uint32_t key, double scale, View out);

}  // namespace convoy::kernels
