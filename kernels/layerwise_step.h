// Optimizer steps whose rate is adapted to each parameter by the ratio of two norms, the trust ratio: LARS and LAMB.
// Fused over all parameters of all groups. Types and low-precision copies are as in kernels/optimizer_step.h.
#pragma once

#include <array>
#include <vector>

#include "convoy/kernels/optimizer_step.h"

namespace convoy::kernels {

/// The tensors of one parameter for lars_step or lamb_step. All have the same number of elements.
struct LayerwiseSlot {
  View parameter;              // updated in place
  ConstView gradient;          // of the parameter, before StepScalars::grad_scale
  std::array<View, 2> states;  // LARS: the momentum; LAMB: the first and the second moment. Updated in place
  View low_precision_copy;     // receives the rounded parameter; null data: none
  bool adapts = true;          // false: the trust ratio is 1, as is usual for biases and norms
};

/// Options of LARS.
struct LarsOptions {
  int rate = 0;             // index of the learning rate in StepScalars::lr, which is lr below
  double lr_scale = 1;      // the learning rate is lr_scale lr
  double momentum = 0.9;    // factor of the previous momentum, from 0 to less than 1
  double weight_decay = 0;  // factor of the parameter that is added to its gradient
  double trust = 1e-3;      // the trust coefficient: the ratio of the norms of an update and of the parameter
};

/// Parameters with common options.
struct LarsGroup {
  std::vector<LayerwiseSlot> slots;  // of the parameters
  LarsOptions options;               // common to them
};

// Computes one step of LARS (You, Gitman and Ginsburg, arXiv:1708.03888, Algorithm 1) for every parameter p with
// momentum m, where |x| is the Euclidean norm of all elements:
// g = grad_scale gradient;  ratio = trust |p| / (|g| + weight_decay |p|);
// m = momentum m + lr_scale lr ratio (g + weight_decay p);  p -= m
// The ratio is 1 without LayerwiseSlot::adapts, and if |p| or |g| is 0.
void lars_step(CpuStream&, const std::vector<LarsGroup>& groups, const StepScalars& scalars);
void lars_step(CudaStream&, const std::vector<LarsGroup>& groups, const StepScalars& scalars);

/// Options of LAMB.
struct LambOptions {
  int rate = 0;             // index of the learning rate in StepScalars::lr, which is lr below
  double lr_scale = 1;      // the learning rate is lr_scale lr
  double beta1 = 0.9;       // decay of the first moment
  double beta2 = 0.999;     // decay of the second moment
  double epsilon = 1e-6;    // added to the square root of the second moment
  double weight_decay = 0;  // factor of the parameter that is added to its update
};

/// Parameters with common options.
struct LambGroup {
  std::vector<LayerwiseSlot> slots;  // of the parameters
  LambOptions options;               // common to them
};

// Computes step number n = steps + 1 of LAMB (You et al., arXiv:1904.00962, Algorithm 2, where phi is the identity) for
// every parameter p with moments m and v:
// g = grad_scale gradient;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;
// u = (m / (1 - b1^n)) / (sqrt(v / (1 - b2^n)) + epsilon) + weight_decay p;
// p -= lr_scale lr (|p| / |u|) u
// The ratio of the norms is 1 without LayerwiseSlot::adapts, and if one of them is 0.
void lamb_step(CpuStream&, const std::vector<LambGroup>& groups, const StepScalars& scalars);
void lamb_step(CudaStream&, const std::vector<LambGroup>& groups, const StepScalars& scalars);

}  // namespace convoy::kernels
