// Optimizer steps, fused over all parameters of a group: one call, one pass over the bytes. PyTorch's
// definitions. All tensors of one slot have the same size and element type (f32 or f64), but for half_copy:
// an f16 or bf16 tensor of that size that receives the new parameter, rounded to nearest even; null data
// where there is none. (Mixed precision computes with the copy and updates the parameter itself: Micikevicius
// et al., arXiv:1710.03740.)
#pragma once

#include <span>

#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

/// What differs from step to step, in the memory of the stream's device: a CUDA graph is recorded once and
/// replayed for every step, and a number that the host passed would stay that of the recording.
struct StepScalars {
  ConstView lr;          // f64 [1]
  ConstView grad_scale;  // f64 [1]: every gradient is multiplied by it first; null data: 1
  ConstView skip;        // i32 [1]: where it is not 0, nothing changes; null data: never
  ConstView steps;  // f64 [1]: updates done, this one included, for Adam's bias corrections; sgd reads none
};

struct SgdSlot {
  View parameter;
  ConstView gradient;
  View momentum;  // null data where momentum = 0
  View half_copy;
};

struct SgdOptions {
  double lr_scale = 1;  // the rate is lr_scale lr
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

// g = grad_scale gradient + weight_decay p;  m = momentum m + g;
// p -= lr_scale lr (nesterov ? g + momentum m : m)
void sgd_step(CpuStream&, std::span<const SgdSlot> slots, const StepScalars& scalars, SgdOptions options);
void sgd_step(CudaStream&, std::span<const SgdSlot> slots, const StepScalars& scalars, SgdOptions options);

struct AdamSlot {
  View parameter;
  ConstView gradient;
  View first_moment;
  View second_moment;
  View half_copy;
};

struct AdamOptions {
  double lr_scale = 1;  // the rate is lr_scale lr
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled =
      false;  // false: Adam, decay joins the gradient (Kingma and Ba, arXiv:1412.6980);
              // true: AdamW, p *= 1 - rate weight_decay (Loshchilov and Hutter, arXiv:1711.05101)
};

// m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
// p -= lr_scale lr (m / (1 - b1^steps)) / (sqrt(v / (1 - b2^steps)) + epsilon)
void adam_step(CpuStream&, std::span<const AdamSlot> slots, const StepScalars& scalars, AdamOptions options);
void adam_step(CudaStream&, std::span<const AdamSlot> slots, const StepScalars& scalars, AdamOptions options);

// steps [1] (f64) += 1, but where skip [1] (i32) is not 0; null data of skip: always.
void count_update(CpuStream&, ConstView skip, View steps);
void count_update(CudaStream&, ConstView skip, View steps);

// coefficient [1] (f64) = min(1, max_norm / (norm / s + 1e-6)) / s: what clips gradients by their norm [1]
// (f64), and undoes the scale s of the loss, loss_scale [1] (f32 or f64). Null data of loss_scale: s = 1; of
// norm: nothing is clipped, and the coefficient is 1 / s.
void clip_coefficient(CpuStream&, ConstView norm, double max_norm, ConstView loss_scale, View coefficient);
void clip_coefficient(CudaStream&, ConstView norm, double max_norm, ConstView loss_scale, View coefficient);

}  // namespace convoy
