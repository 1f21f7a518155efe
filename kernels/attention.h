// Scaled dot-product attention (Vaswani et al., arXiv:1706.03762):
//   y = softmax(scale q k^T) v,
// with the softmax over the keys. For each of B matrices (samples times heads), q is [T, D], k is [S, D] and
// v is [S, V]; all arrays have three axes, such as q [B, T, D]. If `causal`, query i uses only the keys 0 to
// i. S must be positive. bf16 is computed in f32 and rounded once.
//
// On the CPU alone: it never stores the scores q k^T, but computes them in blocks, with an online softmax (Dao et al.,
// FlashAttention, arXiv:2205.14135), and once more in the backward pass. On a GPU the op is a composition of others.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

/// How scores are computed from q k^T.
struct AttentionRule {
  double scale = 1;
  bool causal = false;
};

/// The sizes of an attention.
struct AttentionSizes {
  std::int64_t batch, queries, keys, depth, width;

  AttentionSizes(const Shape& q, const Shape& v)
      : batch(q[0]), queries(q[1]), keys(v[1]), depth(q[2]), width(v[2]) {}
};

// Computes y [B, T, V]. Saves log_sum_exp [B, T, 2] for the backward pass: the largest score of each query, and
// the logarithm of the sum of exp(score - largest). It has the type in which kernels compute.
void attention_forward(CpuStream&, ConstView q, ConstView k, ConstView v, AttentionRule rule, View y,
                       View log_sum_exp);

// Computes the gradients of attention_forward, each of which may be unwanted. With p the softmax, dp = dy v^T
// and ds = p (dp - sum of dy y):
//   dq = scale ds k,  dk = scale ds^T q,  dv = p^T dy.
// Gradients may be the same array, if an array was given twice; dq is stored first, and dv last.
void attention_backward(CpuStream&, ConstView dy, ConstView q, ConstView k, ConstView v, ConstView y,
                        ConstView log_sum_exp, AttentionRule rule, GradView dq, GradView dk, GradView dv);

}  // namespace convoy::kernels
