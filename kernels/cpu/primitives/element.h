// The element types of CPU kernels: storage types and the types they are computed in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/base/dtype.h"
#include "convoy/kernels/base/view.h"

namespace convoy::kernels {

/// The types of arrays on the CPU. bf16 is computed in f32 and rounded once.
inline constexpr ElementTypes<float, double, bfloat16> kCpuTypes{"the CPU"};
/// The types of arrays that the CPU only reads or writes, such as the images of a GPU.
inline constexpr ElementTypes<float, double, bfloat16, float16> kCpuMemoryTypes{"the CPU"};
/// The types in which the CPU computes statistics and optimizer steps.
inline constexpr ElementTypes<float, double> kCpuFullTypes{"the CPU"};

/// Converts a result to its storage type, rounding once.
template <class To, class From>
To stored(From value) {
  if constexpr (kIsHalf<To>) {
    return converted<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

/// Returns a pointer to the first of the largest of n elements. Comparisons with NaN are false.
template <class T>
const T* first_largest(const T* x, std::int64_t n) {
  return std::max_element(x, x + n, [](T u, T v) { return widened(u) < widened(v); });
}

/// Sets y = value, or y += value in GradMode::accumulate.
template <GradMode kMode, class Y, class V>
void put(Y& y, V value) {
  if constexpr (kMode == GradMode::accumulate) {
    y = stored<Y>(widened(y) + value);
  } else {
    y = stored<Y>(value);
  }
}

}  // namespace convoy::kernels
