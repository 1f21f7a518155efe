// Reference results of PyTorch, stored by tests/reference/generate.py, and the formulas of their inputs.
// Tensors with four axes are converted to channels-last ([N, C, H, W] -> [N, H, W, C], [O, I, kH, kW] -> [O,
// kH, kW, I]).
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "convoy/engine/nn/module.h"
#include "convoy/engine/tensor/tensor.h"

namespace convoy::testing {

/// Returns pseudorandom values of the stream `name`: offset + scale * u with u in [-1, 1), rounded to f32 for
/// every `dtype`. Equal to formula.values() in tests/reference/formula.py.
Tensor formula_values(std::string_view name, const Shape& shape, DType dtype, double scale = 1,
                      double offset = 0);
/// Returns labels in [0, classes), i32 [count]. Equal to formula.labels().
Tensor formula_labels(std::string_view name, std::int64_t count, int classes);
/// Sets every parameter and buffer of `model` to formula.model_values(), as fill() in
/// tests/reference/networks.py does.
void fill_by_formula(const nn::Module& model);

/// The tensors of one file in tests/reference.
class Reference {
 public:
  /// Reads `file`, for example "ops.safetensors".
  explicit Reference(const std::string& file);
  /// Returns the tensor `name` in f64. Fails the test and returns an undefined tensor if there is none.
  Tensor at(const std::string& name) const;
  /// Returns all tensors by name, in f64.
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  std::map<std::string, Tensor> tensors_;
};

/// Returns success if all elements of `actual` (f32 or f64) differ from `expected` (f64) by at most
/// `tolerance` times the maximum magnitude of `expected`.
::testing::AssertionResult near(const Tensor& actual, const Tensor& expected, double tolerance);

}  // namespace convoy::testing
