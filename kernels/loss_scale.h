// Dynamic loss scaling (Micikevicius et al., arXiv:1710.03740, section 3.2). The loss is multiplied by a
// scale, so that small gradients do not underflow in f16. The optimizer step divides the gradients by the
// scale. A step with an overflow is skipped and lowers the scale. Many steps in a row without an overflow
// raise it.
#pragma once

#include <cstdint>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

/// Options of dynamic loss scaling. Powers of two keep the scaling exact. A fixed scale has growth = backoff
/// = 1 and minimum = maximum; its first overflow sets `failed`.
struct LossScaleOptions {
  double growth = 2;             // the factor after `interval` steps in a row without an overflow
  double backoff = 0.5;          // the factor after an overflow
  std::int32_t interval = 2000;  // steps
  double minimum = 1;            // of the scale
  double maximum = 0x1p24;       // of the scale
};

/// The state of dynamic loss scaling, in device memory.
struct LossScaleView {
  View scale;       // [1], f32 or f64
  View good_steps;  // i32 [1]: steps since the scale last changed
  View skipped;     // i32 [1]: total number of skipped steps
  View failed;      // i32 [1]: 1 after an overflow at the minimum scale
};

// Updates the state after a step. non_finite (i32 [1]) is the number of gradient elements that are NaN or
// infinite. If it is 0: good_steps += 1. When good_steps reaches `interval`: scale = min(scale growth,
// maximum), good_steps = 0. Otherwise: failed = 1 if scale is at the minimum already; then scale = max(scale
// backoff, minimum), good_steps = 0, skipped += 1.
void update_loss_scale(CpuStream&, ConstView non_finite, const LossScaleView& state,
                       LossScaleOptions options);
void update_loss_scale(CudaStream&, ConstView non_finite, const LossScaleView& state,
                       LossScaleOptions options);

}  // namespace convoy::kernels
