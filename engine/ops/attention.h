// Attention. For threads and the meta device, see ops.h.
#pragma once

#include <optional>

#include "convoy/engine/autograd/variable.h"

namespace convoy {

/// Options of scaled_dot_product_attention().
struct AttentionOptions {
  bool causal = false;               // if true, query i uses only the keys 0 to i
  std::optional<double> scale = {};  // default: 1 / sqrt(D)
};

/// Returns softmax(scale q k^T) v, [..., T, V], for queries q [..., T, D], keys k [..., S, D] and values v
/// [..., S, V], with the softmax over the keys (Vaswani et al., arXiv:1706.03762). The leading sizes, such as
/// those of samples and heads, are equal. The arguments have one floating-point type. D, S and V must be
/// positive. Throws UsageError for other arguments.
///
/// On the CPU, memory beyond arguments and result is proportional to T: scores are computed in blocks, in the
/// manner of FlashAttention (Dao et al., arXiv:2205.14135), and again in the backward pass. A GPU temporarily
/// stores all scores, and in the backward pass also their gradients.
Variable scaled_dot_product_attention(const Variable& q, const Variable& k, const Variable& v,
                                      AttentionOptions options = {});

}  // namespace convoy
