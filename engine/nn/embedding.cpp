#include "convoy/engine/nn/embedding.h"

#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"

namespace convoy::nn {

Embedding::Embedding(int num_embeddings, int embedding_dim)
    : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {
  check(num_embeddings > 0 && embedding_dim > 0, "Embedding {} x {}: expected positive sizes", num_embeddings,
        embedding_dim);
  weight_ = add_parameter("weight", {num_embeddings, embedding_dim}, ParameterKind::weight, Init::normal(1));
}

Variable Embedding::forward(const Variable& indices, const ForwardContext&) {
  check(indices.dtype() == DType::i32, "input is {} {}, expected indices of type i32",
        to_string(indices.dtype()), indices.shape().text());
  const Variable rows = embedding(weight_, indices.value());
  const Tensor& copy = weight_.low_precision_copy();
  return copy.defined() ? cast(rows, copy.dtype()) : rows;
}

std::string Embedding::describe() const {
  return fmt::format("Embedding {} x {}", num_embeddings_, embedding_dim_);
}

}  // namespace convoy::nn
