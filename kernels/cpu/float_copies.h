// Half types where a library or a loop knows f32 only: their values are widened, which is exact, and what is
// computed from them is rounded once.
#pragma once

#include <array>

#include "kernels/convert.h"
#include "kernels/cpu/map.h"
#include "kernels/cpu/workspace.h"
#include "kernels/elementwise.h"

namespace convoy {

/// A stream's memory for the arrays of one call, in f32. It grows to the largest ones and stays.
class FloatCopies {
 public:
  explicit FloatCopies(const CpuStream&) {}

  /// The values of x, which may be null, until `place` is used again.
  ConstView widen(CpuStream& stream, std::size_t place, ConstView x) {
    if (x.data == nullptr) return {};
    const View copy = room(place, x.shape);
    cast(stream, x, copy);
    return copy;
  }

  View room(std::size_t place, const Shape& shape) {
    View view{.data = nullptr, .shape = shape, .dtype = DType::f32};
    view.data = places_.at(place).get(view.bytes());
    return view;
  }

 private:
  std::array<Workspace, 4> places_;
};

/// y = x, or y += x: f32 to a half type.
inline void round_into(CpuStream& stream, ConstView x, GradView y) {
  dispatch_stored(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, y.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      map_range(
          y.mode, begin, end, [](float value) { return value; }, y.as<T>(), x.as<float>());
    });
  });
}

}  // namespace convoy
