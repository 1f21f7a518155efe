// One move of the loss scale, written once for the CPU and the GPU. Source: kernels/loss_scale.h.
#pragma once

#include <cstdint>

#include "kernels/loss_scale.h"

namespace convoy {

/// LossScaleView as pointers, its scale of type T.
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

  CONVOY_HOST_DEVICE void update(bool overflowed, const LossScaleOptions& options) const {
    const double now = *scale;
    if (overflowed) {
      if (now <= options.least) *failed = 1;
      const double lower = now * options.backoff;
      *scale = static_cast<T>(lower > options.least ? lower : options.least);
      *good_steps = 0;
      ++*skipped;
    } else if (++*good_steps >= options.interval) {
      const double higher = now * options.growth;
      *scale = static_cast<T>(higher < options.most ? higher : options.most);
      *good_steps = 0;
    }
  }
};

}  // namespace convoy
