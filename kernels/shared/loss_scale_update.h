// The update of the loss scale, shared by the CPU and CUDA implementations of kernels/loss_scale.h.
#pragma once

#include <cstdint>

#include "convoy/kernels/loss_scale.h"

namespace convoy::kernels {

/// The pointers of a LossScaleView whose scale has type T.
template <class T>
struct LossScaleNumbers {
  T* scale;
  std::int32_t* good_steps;
  std::int32_t* skipped;
  std::int32_t* failed;

  explicit LossScaleNumbers(const LossScaleView& view)
      : scale(view.scale.as<T>()),
        good_steps(view.good_steps.as<std::int32_t>()),
        skipped(view.skipped.as<std::int32_t>()),
        failed(view.failed.as<std::int32_t>()) {}

  /// Updates the scale and the counters after a step, as described in kernels/loss_scale.h.
  CONVOY_HOST_DEVICE void update(bool overflowed, const LossScaleOptions& options) const {
    const double now = *scale;
    if (overflowed) {
      if (now <= options.minimum) *failed = 1;
      const double lower = now * options.backoff;
      *scale = static_cast<T>(lower > options.minimum ? lower : options.minimum);
      *good_steps = 0;
      ++*skipped;
    } else if (++*good_steps >= options.interval) {
      const double higher = now * options.growth;
      *scale = static_cast<T>(higher < options.maximum ? higher : options.maximum);
      *good_steps = 0;
    }
  }
};

}  // namespace convoy::kernels
