// Comparison of batched matrix multiplication and attention with PyTorch (tests/reference/attention.py).
// Tensors with four axes have three in the reference, [B H, T, D].
#include "convoy/engine/ops/attention.h"
#include "convoy/engine/ops/ops.h"
#include "tests/models/parity_fixture.h"

namespace convoy::testing {
namespace {

class AttentionParity : public ParityFixture {
 protected:
  AttentionParity() : ParityFixture("attention.safetensors") {}
};

TEST_P(AttentionParity, BatchedMatmul) {
  struct Case {
    std::string name;
    Shape a, b;
  };
  for (const Case& c :
       {Case{"matmul/batch", {3, 4, 5}, {3, 5, 2}}, Case{"matmul/left_factors", {3, 4, 5}, {5, 2}},
        Case{"matmul/right_factors", {4, 5}, {3, 5, 2}}}) {
    const Variable a = input(c.name + "/a", c.a), b = input(c.name + "/b", c.b);
    expect_parity(c.name, matmul(a, b), {{"a", a}, {"b", b}});
  }
}

TEST_P(AttentionParity, LinearOfSequences) {
  const Variable x = input("linear/x", {2, 3, 5}), weight = input("linear/weight", {4, 5});
  const Variable bias = input("linear/bias", {4});
  expect_parity("linear", linear(x, weight, bias), {{"x", x}, {"weight", weight}, {"bias", bias}});
}

TEST_P(AttentionParity, ScaledDotProductAttention) {
  struct Case {
    std::string name;
    std::int64_t batch, heads, queries, keys, depth, width;
    AttentionOptions options;
  };
  for (const Case& c : {Case{"attention/full", 2, 2, 7, 9, 4, 3, {}},
                        Case{"attention/causal", 1, 3, 9, 9, 4, 4, {.causal = true}},
                        Case{"attention/causal_short", 1, 2, 9, 5, 4, 4, {.causal = true, .scale = 0.7}},
                        Case{"attention/scale", 1, 2, 5, 12, 8, 4, {.scale = 2.5}}}) {
    const std::int64_t matrices = c.batch * c.heads;
    const Variable q = input(c.name + "/q", {matrices, c.queries, c.depth}, 2);
    const Variable k = input(c.name + "/k", {matrices, c.keys, c.depth}, 2);
    const Variable v = input(c.name + "/v", {matrices, c.keys, c.width});
    const auto with_heads = [&](const Variable& x) {
      return reshape(x, {c.batch, c.heads, x.shape()[1], x.shape()[2]});
    };
    const Variable y = scaled_dot_product_attention(with_heads(q), with_heads(k), with_heads(v), c.options);
    expect_parity(c.name, reshape(y, {matrices, c.queries, c.width}), {{"q", q}, {"k", k}, {"v", v}});
  }
}

INSTANTIATE_TEST_SUITE_P(, AttentionParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace convoy::testing
