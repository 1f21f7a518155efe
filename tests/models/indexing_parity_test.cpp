// Comparison of gather, index_select and embedding with PyTorch (tests/reference/indexing.py). The inputs are
// equal and exact in f32. The operations are computed in f32 and f64, and PyTorch's results in f64.
#include <gtest/gtest.h>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/indexing.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

class IndexingParity : public ::testing::TestWithParam<DType> {
 protected:
  Variable input(const std::string& name, const Shape& shape) const {
    return Variable(formula_values(name, shape, GetParam()), true);
  }
  static Tensor indices(const std::string& name, const Shape& shape, std::int64_t size) {
    return formula_labels(name + "/indices", shape.numel(), static_cast<int>(size)).reshape(shape);
  }
  // A gradient is a sum of at most 40 terms below 1, so it has an error of at most 40 roundings of the
  // largest.
  void expect_parity(const std::string& name, const Variable& y, const std::string& input_name,
                     const Variable& x) const {
    static const Reference stored("indexing.safetensors");
    const double tolerance = GetParam() == DType::f64 ? 40 * 0x1p-53 : 40 * 0x1p-24;
    backward(y, {.seed = formula_values(name + "/dy", y.shape(), GetParam())});
    EXPECT_TRUE(near(y.value(), stored.at(name + "/y"), 0)) << name;
    EXPECT_TRUE(near(x.grad(), stored.at(name + "/d" + input_name), tolerance)) << name;
  }
};

TEST_P(IndexingParity, Gather) {
  struct Case {
    std::string name;
    Shape x;
    int axis;
    Shape indices;
  };
  for (const Case& c :
       {Case{"gather/first", {4, 5}, 0, {7, 5}}, Case{"gather/smaller", {4, 6, 3}, 1, {3, 20, 2}},
        Case{"gather/labels", {6, 10}, -1, {6, 1}}}) {
    const Variable x = input(c.name + "/x", c.x);
    expect_parity(c.name, gather(x, indices(c.name, c.indices, c.x[c.axis]), c.axis), "x", x);
  }
}

TEST_P(IndexingParity, IndexSelect) {
  struct Case {
    std::string name;
    Shape x;
    int axis;
    std::int64_t count;
  };
  for (const Case& c :
       {Case{"index_select/first", {5, 3}, 0, 40}, Case{"index_select/middle", {3, 5, 4}, 1, 9},
        Case{"index_select/last", {2, 3, 4}, -1, 7}}) {
    const Variable x = input(c.name + "/x", c.x);
    expect_parity(c.name, index_select(x, c.axis, indices(c.name, {c.count}, c.x[c.axis])), "x", x);
  }
}

TEST_P(IndexingParity, Embedding) {
  const Variable weight = input("embedding/weight", {6, 5});
  expect_parity("embedding", embedding(weight, indices("embedding", {4, 10}, 6)), "weight", weight);
}

INSTANTIATE_TEST_SUITE_P(, IndexingParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace convoy::testing
