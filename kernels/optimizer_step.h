// Optimizer steps, fused over all parameters of all groups: one call and one pass over the memory. The
// formulas are those of PyTorch. All tensors of a slot have the same size and element type (f32 or f64), with
// two exceptions for mixed precision, in which the model computes with a rounded copy of the parameter
// (Micikevicius et al., arXiv:1710.03740):
// - low_precision_copy is f16 or bf16 and receives the new parameter, rounded to nearest even; null data means
//   that there is no copy.
// - gradient may be f16 or bf16. It is converted to the parameter's type, which is exact.
#pragma once

#include <cstdint>
#include <vector>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

/// The scalars that change from step to step, in the memory of the stream's device. A CUDA graph is captured
/// once and replayed for every step, so a scalar argument of the host would keep its value of the capture.
struct StepScalars {
  ConstView lr;          // f64 [R]: learning rates, of which each group uses one
  ConstView grad_scale;  // f64 [1]: the factor of every gradient; null data: 1
  ConstView skip;        // i32 [1]: if not 0, the step changes nothing; null data: 0
  View steps;            // f64 [1]: number of steps before this one; the step adds 1, unless it is skipped
  View own_steps = {};   // f64 [N]: the same for parameters with AdamOptions::own_steps
};

/// The tensors of one parameter for sgd_step.
struct SgdSlot {
  View parameter;           // updated in place
  ConstView gradient;       // of the parameter, before StepScalars::grad_scale
  View momentum;            // null data if SgdOptions::momentum is 0
  View low_precision_copy;  // receives the rounded parameter; null data: none
};

/// Options of SGD.
struct SgdOptions {
  int rate = 0;             // index of the learning rate in StepScalars::lr, which is lr below
  double lr_scale = 1;      // the learning rate is lr_scale lr
  double momentum = 0;      // factor of the previous momentum, from 0 to less than 1
  double weight_decay = 0;  // factor of the parameter that is added to its gradient
  bool nesterov = false;    // Nesterov's momentum: the step looks one momentum ahead
};

/// Parameters with common options.
struct SgdGroup {
  std::vector<SgdSlot> slots;  // of the parameters
  SgdOptions options;          // common to them
};

// Computes one step of SGD for every parameter p with momentum m:
// g = grad_scale gradient + weight_decay p;  m = momentum m + g;
// p -= lr_scale lr (nesterov ? g + momentum m : m)
void sgd_step(CpuStream&, const std::vector<SgdGroup>& groups, const StepScalars& scalars);
void sgd_step(CudaStream&, const std::vector<SgdGroup>& groups, const StepScalars& scalars);

/// The tensors of one parameter for adam_step.
struct AdamSlot {
  View parameter;           // updated in place
  ConstView gradient;       // of the parameter, before StepScalars::grad_scale
  View first_moment;        // moving average of the gradients, updated in place
  View second_moment;       // moving average of the squared gradients, updated in place
  View low_precision_copy;  // receives the rounded parameter; null data: none
};

/// Options of Adam, AdamW and RMSprop.
struct AdamOptions {
  int rate = 0;             // index of the learning rate in StepScalars::lr, which is lr below
  int own_steps = -1;       // index in StepScalars::own_steps, of no other group; -1: StepScalars::steps
  double lr_scale = 1;      // the learning rate is lr_scale lr
  double beta1 = 0.9;       // decay of the first moment
  double beta2 = 0.999;     // decay of the second moment
  double epsilon = 1e-8;    // added to the square root of the second moment
  double weight_decay = 0;  // applied as `decoupled` says
  /// false: Adam, where the weight decay is added to the gradient, g += weight_decay p (Kingma and Ba,
  /// arXiv:1412.6980). true: AdamW, p *= 1 - lr_scale lr weight_decay (Loshchilov and Hutter,
  /// arXiv:1711.05101).
  bool decoupled = false;
  /// Whether the step is that of RMSprop, whose momentum is beta1, without bias corrections (Tieleman and Hinton,
  /// Neural Networks for Machine Learning, lecture 6.5, 2012).
  bool rms_prop = false;
};

/// Parameters with common options.
struct AdamGroup {
  std::vector<AdamSlot> slots;  // of the parameters
  AdamOptions options;          // common to them
};

// Computes step number n = steps + 1, or own_steps[k] + 1 for a group with its own number of steps, of Adam
// for every parameter p with moments m and v, with g as in sgd_step:
// m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
// p -= lr_scale lr (m / (1 - b1^n)) / (sqrt(v / (1 - b2^n)) + epsilon)
// With rms_prop, m = b1 m + g / (sqrt(v) + epsilon), with the new v, and p -= lr_scale lr m.
void adam_step(CpuStream&, const std::vector<AdamGroup>& groups, const StepScalars& scalars);
void adam_step(CudaStream&, const std::vector<AdamGroup>& groups, const StepScalars& scalars);

// Computes coefficient (f64 [1]) = min(1, max_norm / (norm / s + 1e-6)) / s. This factor clips gradients by
// their global norm (f64 [1]) and divides them by the loss scale s = loss_scale (f32 or f64, [1]). Null data
// of loss_scale means s = 1. Null data of norm means no clipping: the coefficient is 1 / s.
void clip_coefficient(CpuStream&, ConstView norm, double max_norm, ConstView loss_scale, View coefficient);
void clip_coefficient(CudaStream&, ConstView norm, double max_norm, ConstView loss_scale, View coefficient);

// Dynamic loss scaling (Micikevicius et al., arXiv:1710.03740, section 3.2). The loss is multiplied by a
// scale, so that small gradients do not underflow in f16. The optimizer step divides the gradients by the
// scale. A step with an overflow is skipped and lowers the scale. Many steps in a row without an overflow
// raise it.

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
