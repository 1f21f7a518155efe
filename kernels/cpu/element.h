// The element types of CPU kernels: what is stored, and what is computed in.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <type_traits>

#include "kernels/convert.h"
#include "kernels/runtime/dtype.h"
#include "kernels/runtime/view.h"

namespace convoy {

/// dispatch_stored(x.dtype, [&](auto zero) { using T = decltype(zero); … }): f32, f64, and bf16, which is
/// computed in f32 and rounded once.
template <class F>
decltype(auto) dispatch_stored(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::bf16: return f(bfloat16{});
    default: throw UsageError("the CPU computes in f32, f64 and bf16; found " + std::string(name_of(dtype)));
  }
}

/// A result as it is stored, rounded once.
template <class To, class From>
To stored(From value) {
  if constexpr (kIsHalf<To>) {
    return converted<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

/// Where the first of the largest of n elements lies. Comparisons with NaN are false.
template <class T>
const T* first_largest(const T* x, std::int64_t n) {
  return std::max_element(x, x + n, [](T u, T v) { return widened(u) < widened(v); });
}

/// y = value, or y += value.
template <Mode kMode, class Y, class V>
void put(Y& y, V value) {
  if constexpr (kMode == Mode::add) {
    y = stored<Y>(widened(y) + value);
  } else {
    y = stored<Y>(value);
  }
}

}  // namespace convoy
