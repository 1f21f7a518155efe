#include "convoy/engine/nn/normalization.h"

#include "convoy/engine/ops/normalization.h"
#include "convoy/kernels/base/check.h"

namespace convoy::nn {

LayerNorm::LayerNorm(const Shape& normalized, NormOptions options)
    : normalized_(normalized), options_(options) {
  check(normalized.rank() > 0 && normalized.numel() > 0, "LayerNorm {}: expected positive sizes",
        normalized.text());
  if (!options.affine) return;
  weight_ = add_parameter("weight", normalized, ParameterKind::norm_scale, Init::constant(1));
  if (options.bias) bias_ = add_parameter("bias", normalized, ParameterKind::norm_shift, Init::constant(0));
}

Variable LayerNorm::forward(const Variable& x, const ForwardContext&) {
  return layer_norm(x, normalized_, weight_, bias_, options_.epsilon);
}

std::string LayerNorm::describe() const { return fmt::format("LayerNorm {}", normalized_.text()); }

GroupNorm::GroupNorm(int groups, int channels, NormOptions options)
    : groups_(groups), channels_(channels), options_(options) {
  check(groups > 0 && channels > 0 && channels % groups == 0,
        "GroupNorm {} of {} channels: expected a positive divisor of the number of channels", groups,
        channels);
  if (!options.affine) return;
  weight_ = add_parameter("weight", {channels}, ParameterKind::norm_scale, Init::constant(1));
  if (options.bias) bias_ = add_parameter("bias", {channels}, ParameterKind::norm_shift, Init::constant(0));
}

Variable GroupNorm::forward(const Variable& x, const ForwardContext&) {
  check(x.shape().rank() >= 2 && x.shape()[-1] == channels_, "input {}, expected [N, …, {}]",
        x.shape().text(), channels_);
  return group_norm(x, groups_, weight_, bias_, options_.epsilon);
}

std::string GroupNorm::describe() const { return fmt::format("GroupNorm {} of {}", groups_, channels_); }

}  // namespace convoy::nn
