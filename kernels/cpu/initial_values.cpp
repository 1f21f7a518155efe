// kernels/initial_values.h on the CPU: normal and uniform random numbers.
#include "convoy/kernels/initial_values.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/cpu/primitives/box_muller.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::kernels {
namespace {

/// Pairs of random numbers computed at a time: they fit the L1 cache.
constexpr int kPairs = 256;

/// Pairs of uniform numbers in [0, 1) with 53 random bits each, which `distribute` transforms in place.
struct Pairs {
  double first[kPairs] = {}, second[kPairs] = {};
};

/// Transforms uniform pairs to normal pairs (Box and Muller). `first` gives the radius of a point and
/// `second` its angle; the point's coordinates are independent and normally distributed.
void to_normals(Pairs& pairs) {
  for (int j = 0; j < kPairs; ++j) {
    const double radius = std::sqrt(-2 * box_muller::log(1 - pairs.first[j]));  // the argument is in (0, 1]
    const auto [cosine, sine] = box_muller::cosine_and_sine(pairs.second[j]);
    pairs.first[j] = radius * cosine;
    pairs.second[j] = radius * sine;
  }
}

/// Maps [0, 1) to [-1, 1).
void to_signed_uniforms(Pairs& pairs) {
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
  check(out.dtype == DType::f64, "initial values: found type {}, expected f32 or f64", to_string(out.dtype));
  draw<double>(stream, random, key, scale, out, distribute);
}

}  // namespace

void draw_normal(CpuStream& stream, const Random& random, std::uint32_t key, double scale, View out) {
  draw(stream, random, key, scale, out, to_normals);
}

void draw_uniform(CpuStream& stream, const Random& random, std::uint32_t key, double scale, View out) {
  draw(stream, random, key, scale, out, to_signed_uniforms);
}

}  // namespace convoy::kernels
