// Helpers that state the cost of an op. Private to engine/ops. The rules of counting are in bench/README.md,
// "What is counted".
#pragma once

#include "convoy/engine/autograd/variable.h"

namespace convoy::detail {

/// The work on each element of an array: operations, arrays read and arrays written.
struct PerElement {
  std::int64_t flops = 0, reads = 0, writes = 0;
};

/// Returns the cost of passes over arrays of the shape and the element type of x.
inline Cost cost_of(const Variable& x, PerElement work) {
  const std::int64_t n = x.shape().numel();
  const auto size = static_cast<std::int64_t>(size_of(x.dtype()));
  return {.flops = n * work.flops, .bytes = n * (work.reads + work.writes) * size};
}

/// Returns the bytes of one array of the shape and the element type of x.
inline std::int64_t bytes_of(const Tensor& x) { return static_cast<std::int64_t>(x.bytes()); }
inline std::int64_t bytes_of(const Variable& x) { return cost_of(x, {.reads = 1}).bytes; }

/// Returns the cost of an op c = a * b of `flops` operations, a GEMM or a convolution, and of the gradients
/// of the factors that require one. Each of the three computations reads two of the arrays and writes the
/// third. Backward makes `passes` more passes over dc: one to sum it for a bias, three for a fused ReLU
/// (which reads dc and c, and writes the gradient in front of it). The forward fuses both.
inline OpCost gemm_cost(std::int64_t flops, const Variable& a, const Variable& b, const Tensor& c,
                        int passes = 0) {
  const std::int64_t bytes = bytes_of(a) + bytes_of(b) + bytes_of(c);
  const std::int64_t gradients = (a.requires_grad() ? 1 : 0) + (b.requires_grad() ? 1 : 0);
  return {.forward = {.flops = flops, .bytes = bytes},
          .backward = {.flops = gradients * flops, .bytes = gradients * bytes + passes * bytes_of(c)}};
}

}  // namespace convoy::detail
