// Dynamic loss scaling (Micikevicius et al., arXiv:1710.03740, section 3.2): the loss is multiplied by a
// scale, so that small gradients are no zeros in f16, and the update divides by it. A gradient that
// overflowed costs its update and lowers the scale; a long run without one raises it.
#pragma once

#include <cstdint>

#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

/// Powers of two keep scaling exact. growth = backoff = 1 with least = most: a fixed scale, which the first
/// overflow fails.
struct LossScaleOptions {
  double growth = 2;             // the factor after `interval` updates in a row without an overflow
  double backoff = 0.5;          // the factor after an overflow
  std::int32_t interval = 2000;  // updates
  double least = 1;
  double most = 0x1p24;
};

struct LossScaleView {
  View scale;       // [1], f32 or f64
  View good_steps;  // i32 [1]: updates since the scale last changed
  View skipped;     // i32 [1]: updates skipped in all
  View failed;      // i32 [1]: 1 once there was an overflow at the least scale
};

// Where non_finite [1] (i32), the number of gradients' elements that are no finite number, is 0:
// good_steps += 1, and after `interval` of them scale = min(scale growth, most), good_steps = 0.
// Else: failed = 1 if scale is at the least already; scale = max(scale backoff, least), good_steps = 0,
// skipped += 1.
void update_loss_scale(CpuStream&, ConstView non_finite, const LossScaleView& state,
                       LossScaleOptions options);
void update_loss_scale(CudaStream&, ConstView non_finite, const LossScaleView& state,
                       LossScaleOptions options);

}  // namespace convoy
