// Tests of one kernel on bf16 and f32 arrays with equal values. The results must be equal except for one
// rounding.
#pragma once

#include "tests/kernels/array.h"
#include "tests/kernels/rounding.h"

namespace convoy::testing {

/// An array in both types, with equal values.
class BothTypes {
 public:
  BothTypes(Shape shape, std::uint32_t seed)
      : half_(Array<bfloat16>::random(shape, seed)), single_(half_.to<float>()) {}

  template <class T>
  Array<T>& of() {
    if constexpr (std::is_same_v<T, bfloat16>) {
      return half_;
    } else {
      return single_;
    }
  }
  template <class T>
  ConstView in() {
    return of<T>().view();
  }
  template <class T>
  View out() {
    return of<T>().view();
  }
  template <class T>
  GradView grad(GradMode mode = GradMode::overwrite) {
    return of<T>().grad(mode);
  }

  void expect_rounded_once() const { expect_rounded(half_, single_); }
  /// Like expect_rounded_once, for kernels that sum in another order or round multiplications differently.
  void expect_rounded_near(double tolerance) const {
    testing::expect_rounded_near(half_, single_, tolerance);
  }

 private:
  Array<bfloat16> half_;
  Array<float> single_;
};

/// Calls run.operator()<T>() for bf16 and f32.
template <class Run>
void in_both_types(const Run& run) {
  run.template operator()<bfloat16>();
  run.template operator()<float>();
}

}  // namespace convoy::testing
