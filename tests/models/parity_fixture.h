// The fixture of tests that compare operations and their gradients with PyTorch. The inputs are equal and
// exact in f32. The operations are computed in the type of the parameter, and PyTorch's results in f64.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "convoy/engine/autograd/backward.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {

class ParityFixture : public ::testing::TestWithParam<DType> {
 protected:
  /// Compares with the results in `file` of tests/reference.
  explicit ParityFixture(const std::string& file) : reference_(file) {}

  /// Returns the bound of the maximum error relative to the maximum value. The longest sum has about 100
  /// terms of similar magnitude, so its rounding error is below sqrt(100) eps of the sum of the magnitudes.
  /// Cancellation and exponentials amplify it by at most 20. The bound is 200 eps.
  double tolerance() const { return GetParam() == DType::f64 ? 200 * 0x1p-53 : 200 * 0x1p-24; }

  Variable input(const std::string& name, const Shape& shape, double scale = 1, double offset = 0) const {
    return Variable(formula_values(name, shape, GetParam(), scale, offset), true);
  }
  /// Compares y, and the gradients of the inputs for a generated dy.
  void expect_parity(const std::string& name, const Variable& y,
                     const std::vector<std::pair<std::string, Variable>>& inputs) const {
    EXPECT_TRUE(near(y.value(), reference_.at(name + "/y"), tolerance())) << name;
    backward(y, {.seed = formula_values(name + "/dy", y.shape(), GetParam())});
    for (const auto& [input_name, x] : inputs)
      EXPECT_TRUE(near(x.grad(), reference_.at(name + "/d" + input_name), tolerance()))
          << name << ", gradient of " << input_name;
  }

 private:
  Reference reference_;
};

}  // namespace convoy::testing
