// Evaluation of an OpCase: its result and its gradients, on any device and in any precision.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {

using Values = std::vector<double>;

struct CaseResult {
  Values y;
  std::vector<Values> gradients;  // of <y, weights>, one per input; empty if not wanted
};

/// Returns a tensor's values on the host, converted to double.
Values values_of(const Tensor& tensor);

/// Returns random arguments. All require a gradient, or only the one with index `only` if given.
std::vector<Variable> arguments(const OpCase& c, DType dtype, const DeviceContext& device,
                                std::size_t only = SIZE_MAX);

/// Returns the op's result and the gradients of <result, weights>. The random weights depend only on the
/// case.
CaseResult evaluate(const OpCase& c, DType dtype, const DeviceContext& device, std::size_t only = SIZE_MAX);

/// Returns the largest error of the op's result, of its gradients, and of the gradients after a second
/// backward has accumulated, relative to their norms and in roundings to `dtype`. The reference is f64 on the
/// same device. Both sides get the same arguments, which are exact in `dtype`, and which begin `offset` elements
/// after an aligned address. Ops round once, but a backward that uses the rounded output amplifies its error, so
/// cases allow 16 roundings and more.
double roundings_of(const OpCase& c, DType dtype, const DeviceContext& device, std::int64_t offset = 0);

/// Returns the cases, and the same at all sizes of `tails`, that state an accuracy in every type (roundings).
std::vector<OpCase> cases_of_every_type();

/// Returns the same case with a batch size of 0.
OpCase with_empty_batch(const OpCase& c);

/// Returns the Euclidean norm.
double norm_of(const Values& values);
/// Returns the Euclidean norm of a - b.
double distance(const Values& a, const Values& b);

/// Returns the permitted error of a result in `dtype`, relative to 1 + its norm: 16 eps sqrt(terms), for a
/// sum of `terms` terms, each rounded once, in any order; the factor 16 covers the few other roundings.
double relative_tolerance(const OpCase& c, DType dtype);

}  // namespace convoy::testing
