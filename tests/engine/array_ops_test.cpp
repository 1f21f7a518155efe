// Properties of array ops that random arguments do not show: ties, NaN, long sums, views of the meta device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <cmath>
#include <limits>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/autograd/check_gradients.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "tests/engine/values.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using testing::message_of;
using testing::values_of;
using Values = std::vector<float>;

Variable vector_of(const Values& values, bool requires_grad = false) {
  return Variable(Tensor::from(values, {static_cast<std::int64_t>(values.size())}, Device::cpu()),
                  requires_grad);
}

TEST(ArrayOps, ArgmaxIsTheFirstNan) {
  EXPECT_EQ(argmax(vector_of({1, kNan, 3, kNan}), 0, true).to_vector<std::int32_t>()[0], 1);
}

TEST(ArrayOps, GradientOfMaxGoesToTheFirstMaximum) {
  const Variable x(Tensor::from<float>({1, 3, 3, 5, 5, 4}, {2, 3}, Device::cpu()), true);
  backward(sum(max(x, 1)));
  EXPECT_EQ(x.grad().to_vector<float>(), (Values{0, 1, 0, 1, 0, 0}));
  EXPECT_EQ(argmax(x, -1).to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(argmax(x, 0, true).shape(), (Shape{1, 3}));
}

// A serial sum in f32 would stop at 2^24.
TEST(ArrayOps, LongSumsKeepTheirPrecision) {
  const std::int64_t n = (std::int64_t{1} << 24) + 64;
  const Variable x(Tensor::full({n, 1}, 1, DType::f32, Device::cpu()));
  EXPECT_EQ(values_of(sum(x, {0}))[0], static_cast<float>(n));
  EXPECT_EQ(values_of(sum(reshape(x, {1, n}), {-1}))[0], static_cast<float>(n));
  EXPECT_EQ(values_of(mean(x, {0, 1}, true))[0], 1);
}

TEST(ArrayOps, ShapesFollowOnTheMetaDevice) {
  const Variable x(Tensor::empty({2, 3, 4}, DType::f32, Device::meta()));
  const Variable y(Tensor::empty({4}, DType::f32, Device::cpu()));
  EXPECT_EQ((x + y).shape(), (Shape{2, 3, 4}));
  EXPECT_EQ(permute(softmax(x, 0), {2, 1, 0}).shape(), (Shape{4, 3, 2}));
  EXPECT_EQ(concat({x, x}, 1).shape(), (Shape{2, 6, 4}));
  EXPECT_EQ(max(pad(x, {{0, 0}, {1, 0}, {0, 0}}), 1).shape(), (Shape{2, 4}));
  EXPECT_EQ(chunk(x, 2, -1)[1].shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(variance(x, {1, 2}).shape(), (Shape{2}));
}

TEST(ArrayOps, OperatorsTakeNumbersOnBothSides) {
  const Variable x = vector_of({2, 4});
  EXPECT_EQ(values_of(1 - x / 2 + 3 * x - -x + 8 / x), (Values{1 - 1 + 6 + 2 + 4, 1 - 2 + 12 + 4 + 2}));
}

// Tests of index_select and embedding beyond their op cases, and of nn::Embedding.

using ::testing::Each;
using ::testing::ElementsAre;

Tensor indices_of(const std::vector<std::int32_t>& values, const Shape& shape) {
  return Tensor::from(values, shape, Device::cpu());
}

std::shared_ptr<nn::Sequential> classifier() {
  auto net = std::make_shared<nn::Sequential>(
      std::vector<nn::Layer>{{"embedding", std::make_shared<nn::Embedding>(5, 3)},
                             {"flatten", std::make_shared<nn::Flatten>()},
                             {"fc", std::make_shared<nn::Linear>(2 * 3, 4)}});
  net->initialize(1);
  return net;
}

TEST(Indexing, ReadsIntegers) {
  const Variable x(indices_of({1, 2, 3, 4, 5, 6}, {2, 3}));
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

// An op as a user writes it, with a kernel for the CPU alone, and check_gradients().

using ::testing::HasSubstr;

/// softsign(x) = x / (1 + |x|), for f64. Its gradient 1 / (1 + |x|)^2 is scaled by `factor` to plant an error.
Variable softsign(const Variable& x, double factor = 1) {
  wait_ready(x);
  const Tensor y = Tensor::empty_like(x.value());
  on(y.stream(), [&](CpuStream&) {
    for (std::int64_t i = 0; i < y.numel(); ++i) {
      const double u = x.value().view().as<double>()[i];
      y.view().as<double>()[i] = u / (1 + std::abs(u));
    }
  });
  return record("softsign", y, {x}, [x = x.value(), factor](const Tensor& dy, std::span<GradSlot> dx) {
    const Tensor gradient = Tensor::empty_like(x);
    on(gradient.stream(), [&](CpuStream&) {
      for (std::int64_t i = 0; i < gradient.numel(); ++i)
        gradient.view().as<double>()[i] =
            factor * dy.view().as<double>()[i] / std::pow(1 + std::abs(x.view().as<double>()[i]), 2);
    });
    dx[0].alias_or_accumulate(gradient);
  });
}

TEST(CheckGradients, AcceptsACorrectGradient) {
  check_gradients([](auto x) { return softsign(x[0]); }, {{3, 4}}, {.low = -4, .high = 4});
  check_gradients([](auto x) { return sum(softsign(x[0] * x[1]), {1}); }, {{3, 4}, {4}});
}

TEST(CheckGradients, NamesTheElementThatDiffers) {
  EXPECT_THAT(testing::message_of<NumericError>([] {
                check_gradients([](auto x) { return x[0] * softsign(x[1], 1.01); }, {{2}, {2}});
              }),
              HasSubstr("the gradient of argument 1 [2] at element 0 is "));
}

TEST(CheckGradients, NoticesAMissingGradient) {
  const auto forgets = [](std::span<const Variable> x) { return Variable(x[0].value()) + x[1]; };
  EXPECT_THAT(testing::message_of<UsageError>([&] {
                check_gradients(forgets, {{2}, {2}});
              }),
              HasSubstr("computed no gradient of argument 0"));
}

TEST(CustomOp, RunsOnTheMetaDeviceAndIsComposed) {
  const Variable x(Tensor::empty({2, 3}, DType::f64, Device::meta()));
  EXPECT_EQ(softsign(x).shape(), (Shape{2, 3}));
}

// The composition, which a bias asks for, makes a mask: the last query must not see later keys.
TEST(ArrayOps, CausalAttentionIsEqualWithABiasOfZeros) {
  for (const auto& [queries, keys] : {std::pair{3, 6}, std::pair{5, 5}, std::pair{6, 3}}) {
    const auto rows = [](std::int64_t count, int step) {
      Values values;
      for (int i = 0; i < 4 * count; ++i) values.push_back(static_cast<float>(i * step % 7) / 4);
      return Variable(Tensor::from(values, {1, count, 4}, Device::cpu()));
    };
    const Variable q = rows(queries, 3), k = rows(keys, 5), v = rows(keys, 2);
    const Variable bias(Tensor::zeros({queries, keys}, DType::f32, Device::cpu()));
    const Values fused = values_of(scaled_dot_product_attention(q, k, v, {.causal = true}));
    const Values composed = values_of(scaled_dot_product_attention(q, k, v, {.causal = true, .bias = bias}));
    ASSERT_EQ(composed.size(), fused.size());
    for (std::size_t i = 0; i < fused.size(); ++i) EXPECT_NEAR(composed[i], fused[i], 1e-5) << queries << i;
  }
}

}  // namespace

}  // namespace convoy
