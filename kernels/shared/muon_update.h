// The numbers of a step of Muon, shared by the CPU loops and the CUDA kernels. See kernels/muon_step.h for
// the formulas.
#pragma once

#include <cmath>

#include "convoy/kernels/muon_step.h"

namespace convoy::kernels {

/// The gradient's part of a step for one element. T is the parameter's type.
template <class T>
struct MuonDirection {
  T grad_scale, momentum;
  bool nesterov;

  /// Returns the direction before it is divided by its norm, from the gradient and the new momentum.
  CONVOY_HOST_DEVICE T direction(T gradient, T m) const {
    return nesterov ? grad_scale * gradient + momentum * m : m;
  }
  /// Returns the new momentum.
  CONVOY_HOST_DEVICE T next_momentum(T gradient, T m) const { return momentum * m + grad_scale * gradient; }
};

/// What a step multiplies a parameter by: rescales it to the norm `target`, or lets it decay if target is 0.
struct MuonKeep {
  double target;  // sqrt(rows) with MuonOptions::normalize, else 0
  double decay;   // lr_scale weight_decay

  MuonKeep() = default;
  MuonKeep(const MuonSlot& slot, const MuonOptions& options)
      : target(options.normalize ? std::sqrt(static_cast<double>(slot.parameter.shape[0])) : 0),
        decay(options.lr_scale * options.weight_decay) {}
  /// Returns the factor for a learning rate and the parameter's norm, which counts only if target is not 0.
  CONVOY_HOST_DEVICE double factor(double lr, double norm) const {
    if (target == 0) return 1 - lr * decay;
    return target / (norm < kMuonEpsilon ? kMuonEpsilon : norm);  // this order of comparison preserves NaN
  }
};

/// Returns the factor that divides a direction by its norm.
CONVOY_HOST_DEVICE inline double muon_inverse_norm(double norm) {
  return 1 / (norm < kMuonEpsilon ? kMuonEpsilon : norm);
}

}  // namespace convoy::kernels
