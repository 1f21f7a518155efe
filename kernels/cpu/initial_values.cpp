#include "kernels/initial_values.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/box_muller.h"
#include "kernels/runtime/check.h"
#include "kernels/runtime/parallel.h"

namespace convoy {
namespace {

/// As many pairs as stay in the first-level cache.
constexpr int kPairs = 256;

/// Uniform in [0, 1) with 53 bits each; and then what was made of them.
struct Pairs {
  double first[kPairs] = {}, second[kPairs] = {};
};

/// first and second of a pair are the radius and the direction of a point whose coordinates are normal.
void to_normals(Pairs& pairs) {
  for (int j = 0; j < kPairs; ++j) {
    const double radius = std::sqrt(-2 * box_muller::log_of(1 - pairs.first[j]));  // of a number in (0, 1]
    const auto [cosine, sine] = box_muller::direction_of(pairs.second[j]);
    pairs.first[j] = radius * cosine;
    pairs.second[j] = radius * sine;
  }
}

void to_both_signs(Pairs& pairs) {
  for (int j = 0; j < kPairs; ++j) {
    pairs.first[j] = 2 * pairs.first[j] - 1;
    pairs.second[j] = 2 * pairs.second[j] - 1;
  }
}

template <class T>
void draw(CpuStream& stream, const Random& random, std::uint32_t key, double scale, View out,
          void (*distribute)(Pairs&)) {
  const std::int64_t count = out.numel();
  T* const values = out.as<T>();
  parallel_for(stream, (count + 1) / 2, 4096, [&](std::int64_t begin, std::int64_t end) {
    Pairs pairs;
    for (std::int64_t i = begin; i < end; i += kPairs) {
      const auto here = static_cast<int>(std::min<std::int64_t>(kPairs, end - i));
      for (int j = 0; j < here; ++j) {
        const std::array<std::uint32_t, 4> words = random.words(static_cast<std::uint64_t>(i + j), key);
        pairs.first[j] = to_uniform53(words[0], words[1]);
        pairs.second[j] = to_uniform53(words[2], words[3]);
      }
      distribute(pairs);
      for (int j = 0; j < here; ++j) {
        const std::int64_t at = 2 * (i + j);
        values[at] = static_cast<T>(scale * pairs.first[j]);
        if (at + 1 < count) values[at + 1] = static_cast<T>(scale * pairs.second[j]);
      }
    }
  });
}

void draw(CpuStream& stream, const Random& random, std::uint32_t key, double scale, View out,
          void (*distribute)(Pairs&)) {
  if (out.dtype == DType::f32) return draw<float>(stream, random, key, scale, out, distribute);
  check(out.dtype == DType::f64, "initial values of {} were asked for; expected f32 or f64",
        name_of(out.dtype));
  draw<double>(stream, random, key, scale, out, distribute);
}

}  // namespace

void draw_normal(CpuStream& stream, const Random& random, std::uint32_t key, double scale, View out) {
  draw(stream, random, key, scale, out, to_normals);
}

void draw_uniform(CpuStream& stream, const Random& random, std::uint32_t key, double scale, View out) {
  draw(stream, random, key, scale, out, to_both_signs);
}

}  // namespace convoy
