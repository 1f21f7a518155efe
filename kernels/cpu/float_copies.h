// Half types where a library or a loop knows f32 only: their values are widened, which is exact, and what is
// computed from them is rounded once.
#pragma once

#include <array>

#include "kernels/convert.h"
#include "kernels/cpu/map.h"
#include "kernels/cpu/workspace.h"
#include "kernels/elementwise.h"

namespace convoy {

/// The arrays of one call in f32.
class FloatCopies {
 public:
  explicit FloatCopies(CpuStream& stream)
      : stream_(stream),
        places_{Workspace(stream), Workspace(stream), Workspace(stream), Workspace(stream)} {}

  /// The values of x, which may be null; they lie in `place`.
  ConstView widen(std::size_t place, ConstView x) {
    if (x.data == nullptr) return {};
    const View copy = room(place, x.shape);
    cast(stream_, x, copy);
    return copy;
  }

  View room(std::size_t place, const Shape& shape) {
    View view{.data = nullptr, .shape = shape, .dtype = DType::f32};
    view.data = places_.at(place).get(view.bytes());
    return view;
  }

 private:
  CpuStream& stream_;
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
