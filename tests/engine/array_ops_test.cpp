// Properties of array ops that random arguments do not show: ties, NaN, long sums, views of the meta device.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "tests/engine/values.h"

namespace convoy {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
using testing::values_of;
using Values = std::vector<float>;

Variable vector_of(const Values& values, bool requires_grad = false) {
  return Variable(Tensor::from(values, {static_cast<std::int64_t>(values.size())}, Device::cpu()),
                  requires_grad);
}

TEST(ArrayOps, EqualElementsShareTheGradientOfMaximum) {
  const Variable x = vector_of({1, 2, 3}, true), y = vector_of({2, 2, 2}, true);
  backward(sum(maximum(x, y)));
  EXPECT_EQ(x.grad().to_vector<float>(), (Values{0, 0.5, 1}));
  EXPECT_EQ(y.grad().to_vector<float>(), (Values{1, 0.5, 0}));
}

TEST(ArrayOps, NanIsPropagated) {
  const Variable x = vector_of({kNan, 1, 2}), y = vector_of({0, kNan, 0});
  for (const auto& op : {maximum, minimum}) {
    const Values result = values_of(op(x, y));
    EXPECT_TRUE(std::isnan(result[0]) && std::isnan(result[1]) && !std::isnan(result[2]));
  }
  EXPECT_TRUE(std::isnan(values_of(max(vector_of({1, kNan, 3}), 0, true))[0]));
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

TEST(ArrayOps, LogSoftmaxOfLargeLogitsIsFinite) {
  const Values result = values_of(log_softmax(vector_of({1000, 0, 1001})));
  EXPECT_NEAR(result[0], -1.3132617, 1e-6);  // -1 - log(1 + exp(-1))
  EXPECT_NEAR(result[1], -1001.3133, 1e-4);
}

TEST(ArrayOps, SumOverNoElementsIsZero) {
  const Variable x(Tensor::zeros({0, 3}, DType::f32, Device::cpu()));
  EXPECT_EQ(values_of(sum(x, {0})), (Values{0, 0, 0}));
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

TEST(ArrayOps, TopKReturnsAscendingPositions) {
  EXPECT_EQ(top_k(vector_of({3, 1, 4, 1, 5}), 3).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{0, 2, 4}));
}

TEST(ArrayOps, TopKRefusesWhatItCannotChoose) {
  const auto message_of = [](auto f) -> std::string {
    try {
      f();
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message_of([] { top_k(vector_of({1, 2}), 3); }), "top_k: k is 3, expected 0 to 2");
  EXPECT_EQ(message_of([] { top_k(vector_of({1, 2}), -1); }), "top_k: k is -1, expected 0 to 2");
  EXPECT_NE(message_of([] {
              top_k(Variable(Tensor::zeros({2, 3}, DType::f32, Device::cpu())), 1);
            }).find("top_k: x"),
            std::string::npos);
}

}  // namespace
}  // namespace convoy
