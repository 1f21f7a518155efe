// OpCase: an op described once. From the description alone come its gradient check in double, its check of
// both gradient modes, its parity between precisions and devices, its empty batch, and its refusals.
#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "engine/autograd/variable.h"

namespace convoy::testing {

struct OpCase {
  std::string name;           // "conv2d_3x3_stride2": letters, digits and underscores
  std::vector<Shape> inputs;  // of the differentiable arguments
  /// The op under test, for arguments of any floating-point type.
  std::function<Variable(std::span<const Variable> x)> op;
  /// No drawn value is nearer to zero than this: keeps finite differences off the kinks of relu.
  double away_from_zero = 0;
  /// The longest sum behind one output or gradient element: scales the tolerance of parity in f32.
  double terms = 1;
  /// Which arguments begin with the batch's size; the empty-batch test sets it to 0. Empty: no such test.
  std::vector<std::size_t> batched;
};

/// How GoogleTest names a case that fails.
inline void PrintTo(const OpCase& op_case, std::ostream* out) { *out << op_case.name; }

/// A call that must be refused with a UsageError whose text holds `expected`.
struct Refusal {
  std::string name;
  std::function<void()> call;
  std::string expected;
};

/// Values in [-1, 1], the same in every precision (multiples of 2^-12), keyed by (case name, argument).
Tensor drawn(const Shape& shape, DType dtype, const Device& device, const std::string& key,
             double away_from_zero = 0);

// One function for each family, in <family>_cases.cpp.
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> shape_cases();
std::vector<OpCase> product_cases();
std::vector<OpCase> conv2d_cases();
std::vector<OpCase> batch_norm_cases();
std::vector<OpCase> pool2d_cases();
std::vector<OpCase> loss_cases();
std::vector<Refusal> refusals();

std::vector<OpCase> all_op_cases();

/// Ops of every family at sizes where vectors, warps, blocks and tiles end: for the parity of devices.
std::vector<OpCase> tail_cases();

}  // namespace convoy::testing
