// Layers of transformers (Vaswani et al., arXiv:1706.03762), with PyTorch's parameter names.
#pragma once

#include <memory>
#include <string>

#include "convoy/engine/nn/module.h"

namespace convoy::nn {

/// Options of MultiheadAttention.
struct MultiheadAttentionOptions {
  bool causal = false;  // position i attends to the positions 0 to i
};

/// Multi-head attention of [N, T, width] to [N, T, width], as torch.nn.MultiheadAttention with batch_first.
/// Called with one input, it attends to the input itself. Called with the list {query [N, T, width], key
/// [N, S, width], value [N, S, width]}, it attends from one sequence to another. Initial values are
/// PyTorch's.
class MultiheadAttention final : public Module {
 public:
  /// Throws UsageError unless both numbers are positive and `heads` divides `width`.
  MultiheadAttention(int width, int heads, MultiheadAttentionOptions options = {});
  std::string describe() const override;

 private:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  Variables forward_all(const Variables& inputs, const ForwardContext& context) override;
  /// Returns the part of the input projection that begins at row `first` and has `rows` rows.
  Variable project(const Variable& x, std::int64_t first, std::int64_t rows) const;
  /// Returns the output for projected queries, keys and values [N, T or S, width].
  Variable attend(const Variable& q, const Variable& k, const Variable& v) const;
  int width_, heads_;
  MultiheadAttentionOptions options_;
  Variable in_weight_, in_bias_, out_weight_, out_bias_;
};

/// Options of TransformerEncoderLayer.
struct TransformerEncoderLayerOptions {
  int hidden = 2048;    // width between the two linear layers
  bool causal = false;  // as in MultiheadAttentionOptions
};

/// A layer of a transformer on [N, T, width], with normalization first and GELU, as
/// torch.nn.TransformerEncoderLayer with norm_first, activation="gelu", batch_first and without dropout:
/// x + attention(norm1(x)), and then x + linear2(gelu(linear1(norm2(x)))).
class TransformerEncoderLayer final : public Module {
 public:
  /// Throws UsageError as MultiheadAttention does, and unless `hidden` is positive.
  TransformerEncoderLayer(int width, int heads, TransformerEncoderLayerOptions options = {});
  std::string describe() const override;

 private:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  int width_, heads_;
  TransformerEncoderLayerOptions options_;
  std::shared_ptr<Module> attention_, linear1_, linear2_, norm1_, norm2_;
};

}  // namespace convoy::nn
