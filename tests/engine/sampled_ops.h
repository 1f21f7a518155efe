// The ops that op_samples.h compares with PyTorch, by the names in the stored samples.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "convoy/engine/ops/ops.h"

namespace convoy::testing {

using Variables = std::vector<Variable>;
using Numbers = std::vector<double>;  // the arguments of an op

/// The result that is compared, and the variable from which the gradients are computed: with a seed, or with ones if it
/// is the sum of the results. Undefined if there are no gradients.
struct SampleResult {
  Variable root;
  Tensor y;
  bool is_sum = false;

  SampleResult(const Variable& result) : root(result), y(result.value()) {}
  SampleResult(const Tensor& result) : y(result) {}
  SampleResult(const CrossEntropy& result) : root(result.loss), y(result.losses), is_sum(true) {}
};

struct SampledOp {
  std::function<SampleResult(const Variables& x, const Numbers& options)> op;
  double terms = 0;  // of the longest sum; 0: each element is computed from one element per input
  double slope = 0;  // the derivative may have 16 roundings of this value: terms near it cancel
  bool has_gaussian_tail = false;  // the result has the relative condition of exp(-x^2 / 2): x^2
  bool is_near_pytorch = false;    // up to four times PyTorch's own error in the same type is permitted
};

/// Returns how to call each op, by the names that tests/reference/samples.py and op_db.py write.
const std::map<std::string, SampledOp>& ops_by_sample_name();

}  // namespace convoy::testing
