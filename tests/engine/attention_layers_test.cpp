// Tests of nn::MultiheadAttention and nn::TransformerEncoderLayer; their losses are compared with PyTorch's in
// tests/models/vision_transformer_parity_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/engine/nn/attention.h"
#include "convoy/engine/ops/ops.h"
#include "tests/engine/values.h"
#include "tests/testing/op_cases/op_case.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Pointwise;
using testing::values_of;

TEST(MultiheadAttention, OfThreeEqualInputsIsSelfAttention) {
  nn::MultiheadAttention layer(8, 2);
  layer.initialize(1);
  const Variable x(testing::drawn({2, 5, 8}, DType::f32, Device::cpu(), "x"));
  EXPECT_THAT(values_of(layer({x, x, x}).front()),
              Pointwise(::testing::FloatNear(1e-6F), values_of(layer(x))));
}

TEST(MultiheadAttention, AttendsFromOneSequenceToAnother) {
  nn::MultiheadAttention layer(8, 4);
  layer.initialize(1);
  const Variable query(testing::drawn({2, 3, 8}, DType::f32, Device::cpu(), "query"));
  const Variable memory(Tensor::full({2, 7, 8}, 0.5, DType::f32, Device::cpu()));
  const Variable y = layer({query, memory, memory}).front();
  EXPECT_EQ(y.shape(), (Shape{2, 3, 8}));
  // All keys are equal, so each query gets the same mean of the values.
  const std::vector<float> values = values_of(y);
  for (std::size_t i = 8; i < values.size(); ++i) EXPECT_NEAR(values[i], values[i - 8], 1e-6);
}

TEST(MultiheadAttention, WhenCausalDoesNotSeeLaterPositions) {
  nn::MultiheadAttention layer(4, 1, {.causal = true});
  layer.initialize(1);
  const Tensor x = testing::drawn({1, 3, 4}, DType::f32, Device::cpu(), "x");
  Tensor changed = x.clone();
  changed.reshape({3, 4}).rows(2, 3).copy_from(Tensor::full({1, 4}, 9, DType::f32, Device::cpu()));
  const std::vector<float> before = values_of(layer(Variable(x))),
                           after = values_of(layer(Variable(changed)));
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i] == after[i], i < 8) << i;
}

TEST(AttentionLayers, RefuseSizesThatTheyCannotCompute) {
  EXPECT_EQ(message_of<UsageError>([] { nn::MultiheadAttention(8, 3); }),
            "MultiheadAttention of width 8: found 3 heads, expected a positive divisor of the width");
  EXPECT_THAT(message_of<UsageError>([] { nn::TransformerEncoderLayer(8, 2, {.hidden = 0}); }),
              HasSubstr("Linear 8 -> 0"));
  nn::MultiheadAttention layer(8, 2);
  const Variable x(Tensor::zeros({2, 5, 6}, DType::f32, Device::cpu()));
  EXPECT_EQ(message_of<UsageError>([&] { layer(x); }),
            "MultiheadAttention 8, 2 heads: input [2, 5, 6], expected [N, T, 8]");
  EXPECT_THAT(message_of<UsageError>([&] {
                layer({x, x});
              }),
              HasSubstr("found 2 inputs, expected 1, or 3: query, key and value"));
}

TEST(TransformerEncoderLayer, DescribesItselfAndItsParts) {
  nn::TransformerEncoderLayer layer(8, 2, {.hidden = 32, .causal = true});
  EXPECT_EQ(layer.describe(), "TransformerEncoderLayer 8, 2 heads, hidden 32, causal");
  std::vector<nn::LayerSummary> rows;
  layer.infer({1, 5, 8}, &rows);
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[1].type, "MultiheadAttention 8, 2 heads, causal");
  EXPECT_EQ(rows[1].parameters, 4 * 8 * 8 + 4 * 8);
}

TEST(TransformerEncoderLayer, ComputesInTheTypeOfItsInput) {
  nn::TransformerEncoderLayer layer(8, 2, {.hidden = 16});
  layer.initialize(1);
  const Tensor x = testing::drawn({2, 5, 8}, DType::f32, Device::cpu(), "x");
  const Variable half = layer(Variable(x.to(DType::bf16)));
  EXPECT_EQ(half.dtype(), DType::bf16);
  const std::vector<float> expected = values_of(layer(Variable(x)));
  // A few operations in a row, each rounded to 8 bits.
  EXPECT_THAT(half.value().to(DType::f32).to_vector<float>(),
              Pointwise(::testing::FloatNear(0.1F), expected));
}

}  // namespace
}  // namespace convoy
