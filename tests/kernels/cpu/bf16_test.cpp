// Tests that CPU kernels on bf16 compute in f32 and round once.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/softmax.h"
#include "convoy/kernels/softmax_cross_entropy.h"
#include "tests/kernels/both_types.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using testing::Array;
using testing::BothTypes;
using testing::in_both_types;

// Sizes: less than a vector, vectors and a tail, and enough work for two threads.
const Shape kShapes[] = {{1}, {37}, {33, 1031}};

class Bf16 : public ::testing::TestWithParam<GradMode> {
 protected:
  CpuStream stream{{.threads = 2}};
};

INSTANTIATE_TEST_SUITE_P(Modes, Bf16, ::testing::Values(GradMode::overwrite, GradMode::accumulate));

TEST_P(Bf16, ElementwiseArithmetic) {
  for (const Shape& shape : kShapes) {
    BothTypes x(shape, 1), y(shape, 2), sum(shape, 3), product(shape, 4), scaled(shape, 5);
    in_both_types([&]<class T>() {
      kernels::add(stream, x.in<T>(), y.in<T>(), sum.out<T>(), 0.75, -3);
      kernels::mul(stream, x.in<T>(), y.in<T>(), product.grad<T>(GetParam()));
      kernels::scale(stream, x.in<T>(), 1.0 / 3, scaled.grad<T>(GetParam()));
    });
    sum.expect_rounded_once();
    product.expect_rounded_once();
    scaled.expect_rounded_once();
  }
}

TEST_P(Bf16, Activations) {
  using kernels::UnaryOp;
  for (const UnaryOp op : {UnaryOp::relu, UnaryOp::gelu, UnaryOp::silu, UnaryOp::tanh, UnaryOp::sigmoid})
    for (const Shape& shape : kShapes) {
      BothTypes x(shape, 1), y(shape, 2), dy(shape, 3), dx(shape, 4);
      in_both_types([&]<class T>() {
        kernels::unary_forward(stream, op, x.in<T>(), y.out<T>());
        kernels::unary_backward(stream, op, dy.in<T>(), x.in<T>(), dx.grad<T>(GetParam()));
      });
      y.expect_rounded_once();
      dx.expect_rounded_once();
    }
}

TEST_P(Bf16, Dropout) {
  const Array<std::int32_t> ids({3}, {5, 0, 9});
  BothTypes x({3, 1031}, 1), y({3, 1031}, 2);
  in_both_types([&]<class T>() {
    kernels::dropout(stream, x.in<T>(), ids.view(), 0.3, {.seed = 4}, y.grad<T>(GetParam()));
  });
  y.expect_rounded_once();
}

TEST_P(Bf16, Reductions) {
  BothTypes x({301, 67}, 1), columns({67}, 2), total({1}, 3), spread({67}, 4);
  in_both_types([&]<class T>() {
    kernels::sum_rows(stream, x.in<T>(), columns.grad<T>(GetParam()));
    kernels::sum(stream, x.in<T>(), total.grad<T>(GetParam()));
    kernels::broadcast_scalar(stream, ConstView(x.of<T>().begin(), {1}, dtype_of<T>), 0.7,
                              spread.grad<T>(GetParam()));
  });
  columns.expect_rounded_once();
  total.expect_rounded_once();
  spread.expect_rounded_once();
}

TEST_P(Bf16, Rows) {
  BothTypes x({65, 67}, 1), bias({67}, 2), y({65, 67}, 3), rectified({65, 67}, 4);
  Array<std::int32_t> half({65}), single({65});
  in_both_types([&]<class T>() {
    kernels::add_bias(stream, x.in<T>(), bias.in<T>(), y.out<T>(), false);
    kernels::add_bias(stream, x.in<T>(), bias.in<T>(), rectified.out<T>(), true);
    kernels::argmax(stream, x.in<T>(), std::is_same_v<T, float> ? single.view() : half.view());
  });
  y.expect_rounded_once();
  rectified.expect_rounded_once();
  testing::expect_same_bits(half, single);
}

TEST_P(Bf16, CrossEntropyReturnsLossInF32) {
  Array<std::int32_t> labels({65});
  for (std::size_t row = 0; row < labels.size(); ++row) labels[row] = static_cast<std::int32_t>(row % 10);
  BothTypes logits({65, 10}, 1), dlogits({65, 10}, 2), probabilities({65, 10}, 3);
  const Array<float> dloss({1}, 0.25F);
  const CrossEntropyOptions options{.smoothing = 0.1, .scale = 1.0 / 65};
  Array<float> totals[] = {Array<float>({1}), Array<float>({1})};
  Array<float> losses[] = {Array<float>({65}), Array<float>({65})};
  Array<float> log_sums[] = {Array<float>({65}), Array<float>({65})};
  Array<std::int32_t> correct[] = {Array<std::int32_t>({65}), Array<std::int32_t>({65})};
  in_both_types([&]<class T>() {
    const std::size_t k = std::is_same_v<T, float> ? 1 : 0;
    kernels::softmax_cross_entropy_forward(stream, logits.in<T>(), labels.view(), options, losses[k].view(),
                                           log_sums[k].view(), correct[k].view(), totals[k].view());
    kernels::softmax_cross_entropy_backward(stream, dloss.view(), logits.in<T>(), labels.view(),
                                            log_sums[k].view(), options, dlogits.grad<T>(GetParam()));
    kernels::softmax(stream, logits.in<T>(), probabilities.out<T>());
  });
  testing::expect_same_bits(losses[0], losses[1]);
  testing::expect_same_bits(log_sums[0], log_sums[1]);
  testing::expect_same_bits(correct[0], correct[1]);
  testing::expect_same_bits(totals[0], totals[1]);
  dlogits.expect_rounded_once();
  probabilities.expect_rounded_once();
}

TEST(Bf16Elements, PropagateNanAndInfinity) {
  CpuStream stream({.threads = 1});
  const float infinity = std::numeric_limits<float>::infinity();
  const Array<bfloat16> x({3}, {bfloat16(NAN), bfloat16(infinity), bfloat16(-infinity)});
  Array<bfloat16> y({3});
  kernels::unary_forward(stream, kernels::UnaryOp::relu, x.view(), y.view());
  EXPECT_TRUE(std::isnan(testing::value_of(y[0])));
  EXPECT_EQ(testing::value_of(y[1]), infinity);
  EXPECT_EQ(testing::value_of(y[2]), 0);
}

TEST(Bf16Elements, RejectF16) {
  CpuStream stream({.threads = 1});
  const Array<float16> x({3});
  Array<float16> y({3});
  EXPECT_EQ(testing::message_of<UsageError>(
                [&] { kernels::unary_forward(stream, kernels::UnaryOp::relu, x.view(), y.view()); }),
            "the CPU computes in f32, f64 and bf16; found f16");
}

}  // namespace
}  // namespace convoy
