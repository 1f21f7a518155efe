// kernels/elementwise.h on the CPU: `map` applies the functions of kernels/shared to the arrays.
#include "convoy/kernels/elementwise.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/cpu/primitives/random_words.h"
#include "convoy/kernels/cpu/primitives/vector_math.h"
#include "convoy/kernels/shared/elementwise_functions.h"

namespace convoy::kernels {

void add(CpuStream& stream, ConstView x, ConstView y, View z, double a, double b) {
  map(stream, x, y, z, WeightedSum{a, b});
}

void scale(CpuStream& stream, ConstView x, double a, GradView y) { map(stream, x, y, Multiple{a}); }

void add_scalar(CpuStream& stream, ConstView x, double a, View y) { map(stream, x, y, AddScalar{a}); }

void unary_forward(CpuStream& stream, UnaryOp op, ConstView x, View y, UnaryNumbers numbers) {
  dispatch_unary<CpuMath>(
      op, numbers, [&](auto function) { map(stream, x, y, UnaryForward<decltype(function)>{function}); });
}

void unary_backward(CpuStream& stream, UnaryOp op, ConstView dy, ConstView saved, GradView dx,
                    UnaryNumbers numbers) {
  dispatch_unary<CpuMath>(op, numbers, [&](auto function) {
    map(stream, dy, saved, dx, UnaryBackward<decltype(function)>{function});
  });
}

void dropout(CpuStream& stream, ConstView x, ConstView sample_ids, double p, Random random, GradView y) {
  if (!y.wanted() || y.numel() == 0) return;
  random = random.resolved();
  const auto* const ids = sample_ids.as<std::int32_t>();
  const std::int64_t sample_size = y.numel() / sample_ids.numel();
  const std::int64_t sample_quads = (sample_size + 3) / 4;  // one Philox draw gives four words
  // Evaluates to_uniform(word) < p in integers: to_uniform() is the upper 24 bits of the word times 2^-24.
  const auto dropped_below = static_cast<std::uint32_t>(std::ceil(p * 0x1p24));
  const double factor = 1 / (1 - p);
  const auto kept_or_zero = [=]<class V>(V value, std::uint32_t word) {
    const V kept = value * static_cast<V>(factor);
    return (word >> 8) < dropped_below ? V{0} : kept;
  };
  dispatch(kCpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, sample_ids.numel() * sample_quads, kElementGrain / 16, [&](auto begin, auto end) {
      constexpr std::int64_t kQuads = 64;  // their words fit the L1 cache
      alignas(64) std::array<std::uint32_t, 4 * kQuads> words;
      std::int64_t quads = 0;
      for (std::int64_t i = begin; i < end; i += quads) {
        const std::int64_t sample = i / sample_quads, quad = i % sample_quads;
        quads = std::min({kQuads, end - i, sample_quads - quad});
        draw_words(random, static_cast<std::uint64_t>(ids[sample]), static_cast<std::uint32_t>(quad),
                   static_cast<int>(quads), words.data());
        const std::int64_t first = sample * sample_size + 4 * quad;
        const std::int64_t count = std::min(4 * quads, sample_size - 4 * quad);
        map_range(y.mode, 0, count, kept_or_zero, y.as<T>() + first, x.as<T>() + first,
                  static_cast<const std::uint32_t*>(words.data()));
      }
    });
  });
}

// cast, fill and assign on the CPU (kernels/elementwise.h): conversion between any two element types.

void cast(CpuStream& stream, ConstView x, View y) {
  dispatch(kAllTypes, x.dtype, [&](auto from) {
    dispatch(kAllTypes, y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      parallel_for(stream, y.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
        map_range<GradMode::overwrite>(
            begin, end, [](compute_t<From> value) { return converted<To>(value); }, y.as<To>(), x.as<From>());
      });
    });
  });
}

void fill(CpuStream& stream, double value, View y) {
  dispatch(kAllTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, y.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      std::fill(y.as<T>() + begin, y.as<T>() + end, converted<T>(value));
    });
  });
}

void assign(CpuStream& stream, std::span<const Assignment> arrays) {
  for (const Assignment& array : arrays) {
    if (array.from.data != nullptr) {
      cast(stream, array.from, array.to);
    } else {
      fill(stream, array.value, array.to);
    }
  }
}

}  // namespace convoy::kernels
