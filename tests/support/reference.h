// What PyTorch computed, stored by tests/reference/generate.py, and the inputs it computed it from. Tensors
// of four axes come channels last ([N, C, H, W] -> [N, H, W, C], [O, I, kH, kW] -> [O, kH, kW, I]); all
// others as they are.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "engine/nn/module.h"
#include "engine/tensor/tensor.h"

namespace convoy::testing {

/// Entries of the stream `name`, offset + scale u with u in [-1, 1), rounded once to f32 whatever the dtype.
/// The same numbers as formula.values() of tests/reference/formula.py.
Tensor formula_values(std::string_view name, const Shape& shape, DType dtype, double scale = 1,
                      double offset = 0);
/// i32 [count], in [0, classes): formula.labels().
Tensor formula_labels(std::string_view name, std::int64_t count, int classes);
/// Sets every parameter and buffer: formula.model_values(), fill() in tests/reference/networks.py.
void fill_by_formula(const Module& model);

/// One stored file.
class Reference {
 public:
  /// "ops.safetensors".
  explicit Reference(const std::string& file);
  /// f64; a test failure and an undefined tensor where there is none of this name.
  Tensor at(const std::string& name) const;

 private:
  std::map<std::string, Tensor> tensors_;
};

/// Are all elements within tolerance times the largest stored magnitude? f32 or f64 against f64.
::testing::AssertionResult near(const Tensor& actual, const Tensor& expected, double tolerance);

}  // namespace convoy::testing
