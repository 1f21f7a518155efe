// OpCase: the description of one op, from which its tests are derived: the gradient check in double
// precision, both gradient modes, parity between precisions and devices, and the empty batch.
#pragma once

#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "convoy/engine/autograd/variable.h"

namespace convoy::testing {

/// The values that arguments of an op are drawn from: uniformly from [center - bound, center + bound], but
/// not close to a kink of the op, such as the 0 of relu, where finite differences are wrong.
struct Domain {
  double bound = 1;
  std::vector<double> kinks;
  double center = 0;
};

/// One op with the shapes of its arguments.
struct OpCase {
  /// Letters, digits and underscores: "conv2d_3x3_stride2". Also the key of the random arguments.
  std::string name;
  std::vector<Shape> inputs;  // of the differentiable arguments
  /// The op under test, for arguments of any floating-point type.
  std::function<Variable(std::span<const Variable> x)> op;
  /// Where drawn arguments come from.
  Domain domain;
  /// The maximum number of terms in the sum of one output or gradient element: scales the tolerance of parity
  /// in f32.
  double terms = 1;
  /// The arguments whose first size is the batch size, which the empty-batch test sets to 0. Empty: no such
  /// test.
  std::vector<std::size_t> batched;
  /// The maximum error of results and gradients in every type, also accumulated, in roundings to that type
  /// (roundings_of()). 0: no such test, because tests in tests/kernels cover the types.
  double roundings = 16;
  /// Shapes of the arguments at which the devices are compared as well: one below, at and above the ends of
  /// vectors, warps, blocks and tiles.
  std::vector<std::vector<Shape>> tails;
  /// Shapes of the arguments at which convoy-bench-kernels measures the op. A first size of 128, of
  /// several, is the batch size. Empty: no such row.
  std::vector<Shape> benchmark;
};

/// Returns a parameter of a normalization in the type that the op expects for an input of its type: f32 for half
/// precision.
Variable parameter(const Variable& values);

/// Prints the name of a case in failure messages of GoogleTest.
inline void PrintTo(const OpCase& op_case, std::ostream* out) { *out << op_case.name; }

/// A call that must throw UsageError with a message that contains `expected`.
struct ErrorCase {
  std::string text;  // of the call
  std::function<void()> call;
  std::string expected;
};
/// Makes the ErrorCase of an expression.
#define ERROR_CASE(expected, ...)                \
  ErrorCase {                                    \
#__VA_ARGS__, [=] { __VA_ARGS__; }, expected \
  }

/// Returns random values from `domain`, keyed by `key` (case name and argument). They are multiples of 2^-12,
/// so they are the same in f32 and f64.
Tensor drawn(const Shape& shape, DType dtype, const DeviceContext& device, const std::string& key,
             const Domain& domain = {});

/// An elementwise op of one floating-point argument.
struct UnaryOp {
  const char* name;  // of the function in engine/ops/ops.h, and of its PyTorch values in tests/reference
  Variable (*op)(const Variable&);
  Domain domain = {};
  double parity_bound = 6;  // of the arguments around domain.center at which PyTorch's values are stored
  bool has_layer = false;   // whether nn::Activation has a kind for it
};
/// Returns all of them. From each entry follow its op case, tail cases, error case and model case, its parity
/// in half precision, and its comparison with PyTorch.
const std::vector<UnaryOp>& unary_ops();

// One function per family of ops.
std::vector<OpCase> elementwise_cases();
std::vector<OpCase> matmul_cases();
std::vector<OpCase> conv2d_cases();
std::vector<OpCase> conv2d_transpose_cases();
std::vector<OpCase> batch_norm_cases();
std::vector<OpCase> pool2d_cases();
std::vector<OpCase> loss_cases();
std::vector<OpCase> arithmetic_cases();
std::vector<OpCase> indexing_cases();
std::vector<OpCase> movement_cases();
std::vector<OpCase> reductions_cases();
std::vector<OpCase> attention_cases();
std::vector<OpCase> normalization_cases();

/// Returns zeros on the CPU, for error cases.
inline Variable zeros(const Shape& shape, DType dtype = DType::f32) {
  return Variable(Tensor::zeros(shape, dtype, Device::cpu()));
}

/// Returns the calls that ops refuse.
std::vector<ErrorCase> error_cases();

/// Returns the cases of all families.
std::vector<OpCase> all_op_cases();

/// Returns ops of every family at sizes around the ends of vectors, warps, blocks and tiles, for tests that
/// compare devices.
std::vector<OpCase> tail_cases();

}  // namespace convoy::testing
