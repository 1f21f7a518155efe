// Support for half-precision arrays in code that computes in f32 only: arguments are widened, which is exact,
// and the result is rounded once.
#pragma once

#include <array>

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/cpu/primitives/workspace.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {

/// Up to four f32 arrays of one kernel call. The memory is returned when the object is destroyed.
class FloatCopies {
 public:
  explicit FloatCopies(CpuStream& stream)
      : stream_(stream),
        buffers_{Workspace(stream), Workspace(stream), Workspace(stream), Workspace(stream)} {}

  /// Copies x in f32 and returns the copy. Returns an empty view if x is null.
  ConstView widen(ConstView x) {
    if (x.data == nullptr) return {};
    const View copy = buffer(x.shape);
    cast(stream_, x, copy);
    return copy;
  }

  /// Returns an uninitialized f32 array.
  View buffer(const Shape& shape) {
    View view{.data = nullptr, .shape = shape, .dtype = DType::f32};
    view.data = buffers_.at(used_++).get(view.bytes());
    return view;
  }

 private:
  CpuStream& stream_;
  std::array<Workspace, 4> buffers_;
  std::size_t used_ = 0;
};

/// Rounds the f32 array x to the type of y: y = x, or y += x.
inline void round_into(CpuStream& stream, ConstView x, GradView y) {
  dispatch(kCpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, y.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      map_range(
          y.mode, begin, end, [](float value) { return value; }, y.as<T>(), x.as<float>());
    });
  });
}

}  // namespace convoy::kernels
