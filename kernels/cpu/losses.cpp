// kernels/losses.h on the CPU. Sums are computed in blocks of a fixed size, independent of the number of
// threads. One thread sums each block, and the blocks' sums are added in order.
#include "convoy/kernels/losses.h"

#include <algorithm>
#include <array>
#include <vector>

#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/cpu/primitives/vector_math.h"
#include "convoy/kernels/shared/element_losses.h"

namespace convoy::kernels {
namespace {

constexpr std::int64_t kBlock = 8192;  // elements
constexpr std::int64_t kTerms = 512;   // of a sum that are computed at once
constexpr std::size_t kLanes = 16;     // partial sums; the compiler may not reorder a sum to vectorize it

/// Returns the sum of n elements.
template <class C>
double sum_of(const C* x, std::int64_t n) {
  std::array<double, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + std::int64_t{kLanes} <= n; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(x[i + lane]);
  for (std::size_t lane = 0; i < n; ++i, ++lane) lanes[lane] += static_cast<double>(x[i]);
  for (std::size_t half = kLanes / 2; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

/// Returns the sum of f(x[i], t[i]) over n elements. Computes some of the terms before it adds them, so that
/// the compiler can vectorize f.
template <class T, class F>
double sum_block(const T* x, const T* t, std::int64_t n, F f) {
  std::array<compute_t<T>, kTerms> terms;
  double sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += kTerms) {
    const std::int64_t count = std::min<std::int64_t>(kTerms, n - begin);
    map_range<GradMode::overwrite>(0, count, f, terms.data(), x + begin, t + begin);
    sum += sum_of(terms.data(), count);
  }
  return sum;
}

/// Computes out[i] = dy factor f(x[i], t[i]), or +=, where dy has one element or one per element of x.
template <class F>
void gradient(const CpuStream& stream, ConstView dy, double factor, ConstView x, ConstView target,
              GradView out, F f) {
  if (!out.wanted()) return;
  dispatch(kCpuTypes, out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const bool is_scalar = dy.numel() == 1;
    const C scale = static_cast<C>(is_scalar ? factor * static_cast<double>(widened(*dy.as<T>())) : factor);
    parallel_for(stream, out.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      if (is_scalar) {
        map_range(
            out.mode, begin, end, [=](C u, C t) { return scale * f(u, t); }, out.as<T>(), x.as<T>(),
            target.as<T>());
      } else {
        map_range(
            out.mode, begin, end, [=](C d, C u, C t) { return d * scale * f(u, t); }, out.as<T>(), dy.as<T>(),
            x.as<T>(), target.as<T>());
      }
    });
  });
}

}  // namespace

void element_loss(CpuStream& stream, ElementLoss loss, ConstView x, ConstView target, View y) {
  dispatch_loss<CpuMath>(loss, [&](auto functions) {
    map(stream, x, target, y, [functions](auto u, auto t) { return functions.loss(u, t); });
  });
}

void element_loss_sum(CpuStream& stream, ElementLoss loss, ConstView x, ConstView target, double factor,
                      View y) {
  const std::int64_t count = x.numel();
  std::vector<double> sums(static_cast<std::size_t>((count + kBlock - 1) / kBlock));
  dispatch_loss<CpuMath>(loss, [&](auto functions) {
    dispatch(kCpuTypes, x.dtype, [&](auto zero) {
      using T = decltype(zero);
      parallel_for(stream, std::ssize(sums), 1, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t block = first; block < last; ++block) {
          const std::int64_t begin = block * kBlock;
          sums[static_cast<std::size_t>(block)] =
              sum_block(x.as<T>() + begin, target.as<T>() + begin, std::min(kBlock, count - begin),
                        [functions](auto u, auto t) { return functions.loss(u, t); });
        }
      });
      double total = 0;
      for (const double sum : sums) total += sum;
      *y.as<T>() = stored<T>(static_cast<compute_t<T>>(factor * total));
    });
  });
}

void element_loss_backward(CpuStream& stream, ElementLoss loss, ConstView dy, double factor, ConstView x,
                           ConstView target, GradView dx, GradView dtarget) {
  dispatch_loss<CpuMath>(loss, [&](auto functions) {
    gradient(stream, dy, factor, x, target, dx, [functions](auto u, auto t) { return functions.by_x(u, t); });
    gradient(stream, dy, factor, x, target, dtarget,
             [functions](auto u, auto t) { return functions.by_target(u, t); });
  });
}

}  // namespace convoy::kernels
