// kernels/elementwise.h on the CPU: each kernel is a function of one element, which `map` applies to the
// arrays.
#include "convoy/kernels/elementwise.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/cpu/primitives/random_words.h"
#include "convoy/kernels/cpu/primitives/vector_math.h"

namespace convoy::kernels {
namespace {

using vector_math::normal_cdf;
using vector_math::normal_density;
using vector_math::sigmoid;

}  // namespace

void add(CpuStream& stream, ConstView x, ConstView y, View z, double a, double b) {
  map(stream, x, y, GradView(z), [a, b]<class T>(T u, T v) { return T(a) * u + T(b) * v; });
}

void mul(CpuStream& stream, ConstView x, ConstView y, GradView z) {
  map(stream, x, y, z, [](auto u, auto v) { return u * v; });
}

void scale(CpuStream& stream, ConstView x, double a, GradView y) {
  map(stream, x, y, [a]<class T>(T u) { return T(a) * u; });
}

void add_scalar(CpuStream& stream, ConstView x, double a, View y) {
  map(stream, x, GradView(y), [a]<class T>(T u) { return u + T(a); });
}

void relu_forward(CpuStream& stream, ConstView x, View y) {
  // This operand order propagates NaN: a ReLU must not hide a diverged training.
  map(stream, x, GradView(y), []<class T>(T u) { return T{0} > u ? T{0} : u; });
}

void relu_backward(CpuStream& stream, ConstView dy, ConstView y, GradView dx) {
  map(stream, dy, y, dx, []<class T>(T d, T v) { return v > 0 ? d : T{0}; });
}

void gelu_forward(CpuStream& stream, ConstView x, View y) {
  map(stream, x, GradView(y), [](auto u) { return u * normal_cdf(u); });
}

void gelu_backward(CpuStream& stream, ConstView dy, ConstView x, GradView dx) {
  map(stream, dy, x, dx, [](auto d, auto u) { return d * (normal_cdf(u) + u * normal_density(u)); });
}

void silu_forward(CpuStream& stream, ConstView x, View y) {
  map(stream, x, GradView(y), [](auto u) { return u * sigmoid(u); });
}

void silu_backward(CpuStream& stream, ConstView dy, ConstView x, GradView dx) {
  const auto derivative = []<class T>(T d, T u) {
    const T s = sigmoid(u);
    return d * s * (1 + u * (1 - s));
  };
  map(stream, dy, x, dx, derivative);
}

void hardswish_forward(CpuStream& stream, ConstView x, View y) {
  const auto function = []<class T>(T u) {
    const T positive = T{0} > u + 3 ? T{0} : u + 3;  // propagates NaN, as in relu_forward
    return u * (positive > 6 ? T{6} : positive) * T(1.0 / 6);
  };
  map(stream, x, GradView(y), function);
}

void hardswish_backward(CpuStream& stream, ConstView dy, ConstView x, GradView dx) {
  const auto derivative = []<class T>(T d, T u) {
    const T slope = u * T(1.0 / 3) + T(0.5);
    return d * (u <= -3 ? T{0} : u >= 3 ? T{1} : slope);
  };
  map(stream, dy, x, dx, derivative);
}

void tanh_forward(CpuStream& stream, ConstView x, View y) {
  map(stream, x, GradView(y), [](auto u) { return vector_math::tanh(u); });
}

void tanh_backward(CpuStream& stream, ConstView dy, ConstView y, GradView dx) {
  map(stream, dy, y, dx, [](auto d, auto v) { return d * (1 - v * v); });
}

void sigmoid_forward(CpuStream& stream, ConstView x, View y) {
  map(stream, x, GradView(y), [](auto u) { return sigmoid(u); });
}

void sigmoid_backward(CpuStream& stream, ConstView dy, ConstView y, GradView dx) {
  map(stream, dy, y, dx, [](auto d, auto v) { return d * v * (1 - v); });
}

void exp_forward(CpuStream& stream, ConstView x, View y) {
  map(stream, x, GradView(y), [](auto u) { return std::exp(u); });
}

void exp_backward(CpuStream& stream, ConstView dy, ConstView y, GradView dx) {
  map(stream, dy, y, dx, [](auto d, auto v) { return d * v; });
}

void log_forward(CpuStream& stream, ConstView x, View y) {
  map(stream, x, GradView(y), [](auto u) { return std::log(u); });
}

void log_backward(CpuStream& stream, ConstView dy, ConstView x, GradView dx) {
  map(stream, dy, x, dx, [](auto d, auto u) { return d / u; });
}

void sqrt_forward(CpuStream& stream, ConstView x, View y) {
  map(stream, x, GradView(y), [](auto u) { return std::sqrt(u); });
}

void sqrt_backward(CpuStream& stream, ConstView dy, ConstView y, GradView dx) {
  map(stream, dy, y, dx, [](auto d, auto v) { return d / (2 * v); });
}

void abs_forward(CpuStream& stream, ConstView x, View y) {
  map(stream, x, GradView(y), [](auto u) { return std::abs(u); });
}

void abs_backward(CpuStream& stream, ConstView dy, ConstView x, GradView dx) {
  map(stream, dy, x, dx, []<class T>(T d, T u) { return u > 0 ? d : u < 0 ? -d : T{0} * u; });
}

void pow_forward(CpuStream& stream, ConstView x, double p, View y) {
  map(stream, x, GradView(y), [p]<class T>(T u) { return std::pow(u, T(p)); });
}

void pow_backward(CpuStream& stream, ConstView dy, ConstView x, double p, GradView dx) {
  map(stream, dy, x, dx, [p]<class T>(T d, T u) { return d * T(p) * std::pow(u, T(p - 1)); });
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

}  // namespace convoy::kernels
