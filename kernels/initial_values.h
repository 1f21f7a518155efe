// Values that parameters begin with. On the host alone: other devices get a copy, and so the same bits.
#pragma once

#include <cstdint>

#include "kernels/random.h"
#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

// out[j] = scale * a number, rounded once to out's type, f32 or f64. Numbers 2 i and 2 i + 1 are of the words
// random.words(i, key). They are computed in double by sums, products, quotients and square roots alone, each
// rounded as IEEE 754 says, so their bits depend on no processor, C library or number of threads.

/// Of the standard normal distribution (Box and Muller, "A note on the generation of random normal deviates",
/// 1958). None is beyond 8.58.
void draw_normal(CpuStream& stream, const Random& random, std::uint32_t key, double scale, View out);

/// Uniform in [-1, 1).
void draw_uniform(CpuStream& stream, const Random& random, std::uint32_t key, double scale, View out);

}  // namespace convoy
