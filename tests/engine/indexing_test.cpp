// Tests of gather, index_select and embedding beyond their op cases, and of nn::Embedding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::message_of;

Tensor indices_of(const std::vector<std::int32_t>& values, const Shape& shape) {
  return Tensor::from(values, shape, Device::cpu());
}

std::shared_ptr<nn::Sequential> classifier() {
  auto net = std::make_shared<nn::Sequential>(
      std::vector<nn::NamedModule>{{"embedding", std::make_shared<nn::Embedding>(5, 3)},
                                   {"flatten", std::make_shared<nn::Flatten>()},
                                   {"fc", std::make_shared<nn::Linear>(2 * 3, 4)}});
  net->initialize(1);
  return net;
}

TEST(Indexing, ReadsIntegers) {
  const Variable x(indices_of({1, 2, 3, 4, 5, 6}, {2, 3}));
  EXPECT_THAT(gather(x, indices_of({2, 0}, {2, 1}), 1).value().to_vector<std::int32_t>(), ElementsAre(3, 4));
  EXPECT_THAT(index_select(x, -1, indices_of({1, 1}, {2})).value().to_vector<std::int32_t>(),
              ElementsAre(2, 2, 5, 5));
}

TEST(Indexing, EmbeddingOfOneIndexIsAVector) {
  const Variable weight(Tensor::from<float>({1, 2, 3, 4}, {2, 2}, Device::cpu()), true);
  const Variable row = embedding(weight, indices_of({1}, {}));
  EXPECT_EQ(row.shape(), (Shape{2}));
  EXPECT_THAT(row.value().to_vector<float>(), ElementsAre(3, 4));
}

TEST(Indexing, GradientsOfSeveralLookupsAddUp) {
  const Variable weight(Tensor::full({3, 2}, 1, DType::f32, Device::cpu()), true);
  const Variable once = embedding(weight, indices_of({0, 2, 2}, {3}));
  const Variable twice = embedding(weight, indices_of({2}, {1}));
  backward(sum(once) + sum(twice) * 2);
  EXPECT_THAT(weight.grad().to_vector<float>(), ElementsAre(1, 1, 0, 0, 4, 4));
}

TEST(Embedding, NamesItsWeightAsPyTorch) {
  nn::Embedding layer(5, 3);
  ASSERT_EQ(layer.parameters().size(), 1U);
  EXPECT_EQ(layer.parameters()[0].name, "weight");
  EXPECT_EQ(layer.parameters()[0].variable.shape(), (Shape{5, 3}));
  EXPECT_EQ(layer.describe(), "Embedding 5 x 3");
  EXPECT_EQ(message_of<UsageError>([] { nn::Embedding(0, 3); }), "Embedding 0 x 3: expected positive sizes");
}

TEST(Embedding, DrawsWeightsFromTheStandardNormalDistribution) {
  nn::Embedding layer(1000, 64);
  layer.initialize(1);
  double first = 0, second = 0;
  const std::vector<float> values = layer.parameters()[0].variable.value().to_vector<float>();
  const auto n = static_cast<double>(values.size());
  for (const double value : values) first += value / n, second += value * value / n;
  EXPECT_NEAR(first, 0, 5 / std::sqrt(n));       // five deviations of a mean
  EXPECT_NEAR(second, 1, 5 * std::sqrt(2 / n));  // and of a mean of squares
}

TEST(Embedding, TrainsFromIntegers) {
  const auto net = classifier();
  const Variable tokens(indices_of({0, 4, 4, 1}, {2, 2}));
  const Variable logits = (*net)(tokens, {.training = true});
  backward(cross_entropy_sum(logits, indices_of({3, 0}, {2})));
  const std::vector<float> gradient = net->parameters()[0].variable.grad().to_vector<float>();
  for (const std::size_t row : {0U, 1U, 4U}) EXPECT_NE(gradient[3 * row], 0) << row;
  for (const std::size_t row : {2U, 3U}) EXPECT_EQ(gradient[3 * row], 0) << row;
  EXPECT_FALSE(tokens.requires_grad());
}

TEST(Embedding, InfersShapesForIntegers) {
  std::vector<nn::LayerSummary> rows;
  EXPECT_EQ(classifier()->infer({1, 2}, &rows, DType::i32).shape(), (Shape{1, 4}));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].outputs.front(), (Shape{1, 2, 3}));
  EXPECT_EQ(rows[0].parameters, 15);
  EXPECT_EQ(rows[2].flops, 2 * 6 * 4);
  EXPECT_EQ(message_of<UsageError>([] {
              classifier()->infer({1, 2});
            }),
            "embedding (Embedding 5 x 3): input is f32 [1, 2], expected indices of type i32");
}

TEST(Embedding, GivesTheTypeOfItsLowPrecisionCopy) {
  const auto net = classifier();
  net->keep_low_precision_copies(DType::bf16);
  const Variable tokens(indices_of({0, 4, 4, 1}, {2, 2}));
  const Variable logits = (*net)(tokens, {.training = true});
  EXPECT_EQ(logits.dtype(), DType::bf16);
  backward(sum(logits));
  EXPECT_EQ(net->parameters()[0].variable.grad().dtype(), DType::f32);
}

}  // namespace
}  // namespace convoy
