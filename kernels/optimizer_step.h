// Optimizer steps, fused over all parameters of a group: one call, one pass over the bytes. PyTorch's
// definitions. All tensors of one slot have the same size and element type (f32 or f64), but for half_copy:
// an f16 or bf16 tensor of that size that receives the new parameter, rounded to nearest even; null data
// where there is none. (Mixed precision computes with the copy and updates the parameter itself: Micikevicius
// et al., arXiv:1710.03740.) grad_scale: a one-element f64 tensor that every gradient is multiplied by first
// (the clipping coefficient), or null data for 1.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

struct SgdSlot {
  View parameter;
  ConstView gradient;
  View momentum;  // null data where momentum = 0
  View half_copy;
};

struct SgdOptions {
  double lr = 0.1;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

// g = s grad + weight_decay p;  m = momentum m + g;  p -= lr (nesterov ? g + momentum m : m)
void sgd_step(CpuStream&, std::span<const SgdSlot> slots, ConstView grad_scale, SgdOptions options);
void sgd_step(CudaStream&, std::span<const SgdSlot> slots, ConstView grad_scale, SgdOptions options);

struct AdamSlot {
  View parameter;
  ConstView gradient;
  View first_moment;
  View second_moment;
  View half_copy;
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // false: Adam, decay joins the gradient (Kingma and Ba, arXiv:1412.6980);
                           // true: AdamW, p *= 1 - lr weight_decay (Loshchilov and Hutter, arXiv:1711.05101)
  std::int64_t step = 1;   // 1 for the first, for the bias corrections
};

// m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
// p -= lr (m / (1 - b1^step)) / (sqrt(v / (1 - b2^step)) + epsilon)
void adam_step(CpuStream&, std::span<const AdamSlot> slots, ConstView grad_scale, AdamOptions options);
void adam_step(CudaStream&, std::span<const AdamSlot> slots, ConstView grad_scale, AdamOptions options);

// coefficient [1] (f64) = min(1, max_norm / (norm + 1e-6)), from norm [1] (f64): what clips a gradient by its
// norm.
void clip_coefficient(CpuStream&, ConstView norm, double max_norm, View coefficient);
void clip_coefficient(CudaStream&, ConstView norm, double max_norm, View coefficient);

}  // namespace convoy
