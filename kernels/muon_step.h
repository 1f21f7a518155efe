// The elementwise parts of a step of Muon (Jordan et al., 2024, https://kellerjordan.github.io/posts/muon/),
// fused over all parameters of all groups. A step is muon_direction(), then the orthogonalization of the
// directions (engine/optim/newton_schulz.h), then muon_update(). Parameters are f32 or f64; a gradient may be
// f16 or bf16, and a parameter may have a low-precision copy, as in kernels/optimizer_step.h.
#pragma once

#include <vector>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/optimizer_step.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

/// The tensors of one parameter for a step of Muon. All have the same number of elements.
struct MuonSlot {
  View parameter;           // [rows, …]; updated in place by muon_update
  ConstView gradient;       // of the parameter, before StepScalars::grad_scale
  View momentum;            // of the parameter's type; updated in place by muon_direction
  View direction;           // of muon_direction_type(): written by muon_direction, read by muon_update
  View low_precision_copy;  // receives the rounded parameter; null data: none
  double scale = 1;         // factor of the direction in the update
};

/// Options of Muon.
struct MuonOptions {
  int rate = 0;             // index of the learning rate in StepScalars::lr, which is lr below
  double lr_scale = 1;      // the learning rate is lr_scale lr
  double momentum = 0.95;   // factor of the previous momentum, from 0 to less than 1
  double weight_decay = 0;  // decoupled: the parameter is multiplied by 1 - lr_scale lr weight_decay
  bool nesterov = true;     // Nesterov's momentum: the direction looks one momentum ahead
  bool normalize = false;   // rescales the parameter to the norm sqrt(rows) instead of decaying it
};

/// Parameters with common options.
struct MuonGroup {
  std::vector<MuonSlot> slots;  // of the parameters
  MuonOptions options;          // common to them
};

/// The minimum norm by which muon_direction divides, as in torch.optim.Muon.
inline constexpr double kMuonEpsilon = 1e-7;

// Returns the type of directions of parameters of this type: bf16 on a GPU for f32, else the parameter's
// type.
inline DType muon_direction_type(const CpuStream&, DType parameter) { return parameter; }
inline DType muon_direction_type(const CudaStream&, DType parameter) {
  return parameter == DType::f32 ? DType::bf16 : parameter;
}

// Computes for every parameter p with momentum m, where |x| is the Euclidean norm of all elements:
// m = momentum m + grad_scale gradient;  u = nesterov ? grad_scale gradient + momentum m : m;
// direction = u / max(|u|, kMuonEpsilon);
// keep[i] = normalize ? sqrt(rows) / max(|p|, kMuonEpsilon) : 1 - lr_scale lr weight_decay
// keep (f64) has one element per slot, in the order of groups and slots. A skipped step leaves m unchanged,
// and its directions have no meaning. Does not count the step.
void muon_direction(CpuStream&, const std::vector<MuonGroup>& groups, const StepScalars& scalars, View keep);
void muon_direction(CudaStream&, const std::vector<MuonGroup>& groups, const StepScalars& scalars, View keep);

// Computes p = keep[i] p - lr_scale lr scale direction for every parameter p. A skipped step changes nothing.
// Does not count the step.
void muon_update(CpuStream&, const std::vector<MuonGroup>& groups, const StepScalars& scalars,
                 ConstView keep);
void muon_update(CudaStream&, const std::vector<MuonGroup>& groups, const StepScalars& scalars,
                 ConstView keep);

}  // namespace convoy::kernels
