// Layers that normalize within samples. Training and inference are the same.
#pragma once

#include <string>

#include "convoy/engine/nn/module.h"

namespace convoy::nn {

/// Options of LayerNorm and GroupNorm.
struct NormOptions {
  double epsilon = 1e-5;  // added to the variance
  bool affine = true;     // has the parameters weight, initially 1, and bias, initially 0
  bool bias = true;       // false: no bias
};

/// Layer normalization over the last axes, with the parameters weight and bias of their shape.
class LayerNorm final : public Module {
 public:
  /// Throws UsageError unless `normalized`, the sizes of the last axes, has at least one, all positive.
  explicit LayerNorm(const Shape& normalized, NormOptions options = {});
  std::string describe() const override;

 private:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  Shape normalized_;
  NormOptions options_;
  Variable weight_, bias_;  // undefined without such a parameter
};

/// Group normalization of [N, …, C] over groups of adjacent channels, with the parameters weight and bias
/// [C].
class GroupNorm final : public Module {
 public:
  /// Throws UsageError unless both numbers are positive and `groups` divides `channels`.
  GroupNorm(int groups, int channels, NormOptions options = {});
  std::string describe() const override;

 private:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  int groups_, channels_;
  NormOptions options_;
  Variable weight_, bias_;
};

}  // namespace convoy::nn
