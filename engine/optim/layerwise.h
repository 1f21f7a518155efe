// Optimizers for large batches, whose rate is adapted to each parameter by its trust ratio: LARS and LAMB.
// The update of an element depends on its whole parameter, so they cannot be sharded (ZeRO). Biases and norms
// have the ratio 1.
#pragma once

#include "convoy/engine/optim/optimizer.h"

namespace convoy::optim {

/// Settings of Lars.
struct LarsSettings {
  double momentum = 0.9;            // from 0 to less than 1
  double trust_coefficient = 1e-3;  // of the trust ratio; above 0
};

/// Layer-wise adaptive rate scaling (You, Gitman and Ginsburg, arXiv:1708.03888): SGD whose rate is
/// multiplied by trust_coefficient |p| / (|g| + weight_decay |p|) for each filter and weight p with the
/// gradient g. See kernels::lars_step().
class Lars final : public Sgd {
 public:
  /// Throws UsageError for invalid settings, and like the constructor of Optimizer.
  explicit Lars(std::vector<ParameterGroup> groups, LarsSettings settings = {});
  std::string name() const override { return "lars"; }
  bool is_elementwise() const override { return false; }

 private:
  void step_groups(const Indices& indices, const kernels::StepScalars& scalars) override;
  double trust_;
};

/// Settings of Lamb.
struct LambSettings {
  double beta1 = 0.9;     // decay of the first moment, from 0 to less than 1
  double beta2 = 0.999;   // decay of the second moment, from 0 to less than 1
  double epsilon = 1e-6;  // added to the square root of the second moment; above 0
};

/// Layer-wise adaptive moments for batch training (You et al., arXiv:1904.00962): the update u of AdamW is
/// scaled by |p| / |u| for each filter and weight p. See kernels::lamb_step().
class Lamb final : public Adam {
 public:
  /// Throws UsageError for invalid settings, and like the constructor of Optimizer.
  explicit Lamb(std::vector<ParameterGroup> groups, LambSettings settings = {});
  std::string name() const override { return "lamb"; }
  bool is_elementwise() const override { return false; }

 private:
  void step_groups(const Indices& indices, const kernels::StepScalars& scalars) override;
};

}  // namespace convoy::optim
