// A table of vectors, one per index.
#pragma once

#include "convoy/engine/nn/module.h"

namespace convoy::nn {

/// The rows of a weight [num_embeddings, embedding_dim] at indices: i32 […] to […, embedding_dim]. Initial
/// weights are from N(0, 1), as in PyTorch. If the weight has a low-precision copy, the result has its type:
/// this is how mixed precision reaches the layers behind. Rows are rounded after they are chosen, so the
/// gradient is summed in the type of the weight.
class Embedding final : public Module {
 public:
  /// Throws UsageError unless both sizes are positive.
  Embedding(int num_embeddings, int embedding_dim);
  std::string describe() const override;

 private:
  Variable forward(const Variable& indices, const ForwardContext& context) override;
  int num_embeddings_, embedding_dim_;
  Variable weight_;
};

}  // namespace convoy::nn
