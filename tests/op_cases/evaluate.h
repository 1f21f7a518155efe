// Runs an OpCase: its result and its gradients, on any device and in any precision.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/op_cases/op_case.h"

namespace convoy::testing {

using Values = std::vector<double>;

struct CaseResult {
  Values y;
  std::vector<Values> gradients;  // of <y, weights>, for each input; empty where none was wanted
};

Values values_of(const Tensor& tensor);

/// Drawn arguments; `only`: the one that wants a gradient (all do, unless said).
std::vector<Variable> arguments(const OpCase& c, DType dtype, const Device& device,
                                std::size_t only = SIZE_MAX);

/// The op's result and the gradients of <result, weights>, with weights drawn once for each case.
CaseResult evaluate(const OpCase& c, DType dtype, const Device& device, std::size_t only = SIZE_MAX);

/// The same case with no samples in its batch.
OpCase with_empty_batch(const OpCase& c);

double norm_of(const Values& values);  // Euclidean
double distance(const Values& a, const Values& b);

/// What a result in `dtype` may differ from the exact one, relative to 1 + its norm: a sum of `terms`
/// products, each rounded once, in any order; 16 for the few roundings around it.
double relative_tolerance(const OpCase& c, DType dtype);

}  // namespace convoy::testing
