// Batch norm with a residual and a ReLU has the bits of batch norm, addition and ReLU one after the other.
#include <cstring>

#include "kernels/batchnorm.h"
#include "kernels/elementwise.h"
#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;

struct Fusion {
  bool training, relu, residual;
};

/// All that a batch norm reads and writes; the same numbers in every one of a shape.
template <class T>
struct Block {
  Array<T> x, gamma, beta, residual, dy;
  Array<T> y, mean, inverse_std, running_mean, running_var;
  Array<T> dx, dresidual, dgamma, dbeta;

  Block(std::int64_t rows, std::int64_t channels)
      : x(Array<T>::random({rows, channels}, 1, 1)),
        gamma(Array<T>::random({channels}, 2)),
        beta(Array<T>::random({channels}, 3)),
        residual(Array<T>::random({rows, channels}, 4, 3)),
        dy(Array<T>::random({rows, channels}, 5)),
        y({rows, channels}),
        mean({channels}),
        inverse_std({channels}),
        running_mean(Array<T>::random({channels}, 6)),
        running_var({channels}, T{2}),
        dx(Array<T>::random({rows, channels}, 7)),
        dresidual(Array<T>::random({rows, channels}, 8)),
        dgamma(Array<T>::random({channels}, 9)),
        dbeta(Array<T>::random({channels}, 10)) {}

  void forward(CpuStream& stream, const Fusion& fusion) {
    const BatchNormOptions options{.relu = fusion.relu};
    const ConstView added = fusion.residual ? ConstView(residual.view()) : ConstView();
    if (fusion.training)
      batch_norm_forward(stream, x.view(), gamma.view(), beta.view(), added, y.view(), mean.view(),
                         inverse_std.view(), running_mean.view(), running_var.view(), options);
    else
      batch_norm_inference(stream, x.view(), gamma.view(), beta.view(), added, running_mean.view(),
                           running_var.view(), y.view(), options);
  }
  /// From the gradient `upstream` of y, with gradients of x and of the residual where they are told to go.
  void backward(CpuStream& stream, const Fusion& fusion, const Array<T>& upstream, Mode mode, GradView to_x,
                GradView to_residual) {
    const BatchNormOptions options{.relu = fusion.relu};
    const ConstView result = fusion.relu ? ConstView(y.view()) : ConstView();
    if (fusion.training)
      batch_norm_backward(stream, upstream.view(), x.view(), result, gamma.view(), mean.view(),
                          inverse_std.view(), to_x, to_residual, dgamma.grad(mode), dbeta.grad(mode),
                          options);
    else
      batch_norm_inference_backward(stream, upstream.view(), x.view(), result, gamma.view(),
                                    running_mean.view(), running_var.view(), to_x, to_residual,
                                    dgamma.grad(mode), dbeta.grad(mode), options);
  }
};

/// Also of NaN and of zeros with a sign.
template <class T>
void expect_identical(const Array<T>& found, const Array<T>& expected, const char* what) {
  ASSERT_EQ(found.shape(), expected.shape());
  for (std::size_t e = 0; e < found.size(); ++e)
    ASSERT_EQ(std::memcmp(&found[e], &expected[e], sizeof(T)), 0)
        << what << ", element " << e << ": " << found[e] << " and " << expected[e];
}

template <class T>
void expect_fused_as_separate(Block<T> fused, const Fusion& fusion, Mode mode) {
  SCOPED_TRACE(fused.x.shape().text() + (fusion.training ? ", training" : ", inference") +
               (fusion.relu ? ", relu" : "") + (fusion.residual ? ", residual" : "") +
               (mode == Mode::add ? ", adding" : ""));
  CpuStream stream({.threads = 2});
  Block<T> separate = fused;

  fused.forward(stream, fusion);
  fused.backward(stream, fusion, fused.dy, mode, fused.dx.grad(mode), fused.dresidual.grad(mode));

  const Fusion plain{.training = fusion.training, .relu = false, .residual = false};
  separate.forward(stream, plain);
  if (fusion.residual) add(stream, separate.y.view(), separate.residual.view(), separate.y.view(), 1, 1);
  if (fusion.relu) relu_forward(stream, separate.y.view(), separate.y.view());
  Array<T> g = separate.dy;
  if (fusion.relu) relu_backward(stream, separate.dy.view(), separate.y.view(), g.grad());
  separate.backward(stream, plain, g, mode, separate.dx.grad(mode), GradView());
  scale(stream, g.view(), 1, separate.dresidual.grad(mode));

  expect_identical(fused.y, separate.y, "y");
  expect_identical(fused.mean, separate.mean, "mean");
  expect_identical(fused.running_var, separate.running_var, "running_var");
  expect_identical(fused.dx, separate.dx, "dx");
  expect_identical(fused.dresidual, separate.dresidual, "dresidual");
  expect_identical(fused.dgamma, separate.dgamma, "dgamma");
  expect_identical(fused.dbeta, separate.dbeta, "dbeta");
}

// Channels below, at and beyond the lanes of a sum; rows within one block and over several, and more of both
// than a thread takes at once.
constexpr std::int64_t kShapes[][2] = {{2, 1}, {3, 3}, {33, 17}, {65, 16}, {2053, 2}, {700, 65}};

template <class F>
void for_each_fusion(const F& f) {
  for (const bool training : {true, false})
    for (const bool relu : {true, false})
      for (const bool residual : {true, false}) f(Fusion{training, relu, residual});
}

TEST(BatchNormFused, HasTheBitsOfSeparateOps) {
  for (const auto& [rows, channels] : kShapes)
    for_each_fusion([rows = rows, channels = channels](const Fusion& fusion) {
      for (const Mode mode : {Mode::write, Mode::add}) {
        expect_fused_as_separate(Block<float>(rows, channels), fusion, mode);
        expect_fused_as_separate(Block<double>(rows, channels), fusion, mode);
      }
    });
}

TEST(BatchNormFused, NanIsNotHidden) {
  Block<float> block(40, 18);
  block.x[5] = std::numeric_limits<float>::quiet_NaN();
  block.residual[100] = std::numeric_limits<float>::quiet_NaN();
  for_each_fusion([&](const Fusion& fusion) { expect_fused_as_separate(block, fusion, Mode::write); });
  CpuStream stream({.threads = 1});
  block.forward(stream, {.training = true, .relu = true, .residual = true});
  EXPECT_TRUE(std::isnan(block.y[5]));
  EXPECT_TRUE(std::isnan(block.y[100]));
}

TEST(BatchNormFused, UnwantedGradientsAreLeftAlone) {
  CpuStream stream({.threads = 2});
  const Block<float> block(700, 65);
  for (const bool training : {true, false}) {
    const Fusion fusion{.training = training, .relu = true, .residual = true};
    Block<float> all = block;
    all.forward(stream, fusion);
    Block<float> some = all;
    all.backward(stream, fusion, all.dy, Mode::write, all.dx.grad(), all.dresidual.grad());
    some.backward(stream, fusion, some.dy, Mode::write, GradView(), some.dresidual.grad());
    expect_identical(some.dresidual, all.dresidual, "dresidual alone");
    expect_identical(some.dx, block.dx, "dx unwanted");
    some = all;
    some.dresidual = block.dresidual;
    some.backward(stream, fusion, some.dy, Mode::write, some.dx.grad(), GradView());
    expect_identical(some.dx, all.dx, "dx alone");
    expect_identical(some.dresidual, block.dresidual, "dresidual unwanted");
  }
}

// x is its own residual: its gradient is the sum of both.
TEST(BatchNormFused, BothGradientsMayGoToOneArray) {
  CpuStream stream({.threads = 2});
  const Fusion fusion{.training = true, .relu = true, .residual = true};
  Block<double> apart(700, 65);
  apart.forward(stream, fusion);
  Block<double> together = apart;
  apart.backward(stream, fusion, apart.dy, Mode::write, apart.dx.grad(), apart.dresidual.grad());
  together.backward(stream, fusion, together.dy, Mode::write, together.dx.grad(Mode::write),
                    together.dx.grad(Mode::add));
  add(stream, apart.dx.view(), apart.dresidual.view(), apart.dx.view(), 1, 1);
  expect_identical(together.dx, apart.dx, "sum");
}

}  // namespace
}  // namespace convoy
