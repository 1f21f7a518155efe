// Batch norm with a residual and a ReLU has the bits of batch norm, addition and ReLU one after the other.
#include <cstring>

#include "kernels/elementwise.h"
#include "tests/kernels/batchnorm_arrays.h"

namespace convoy {
namespace {

using testing::Array;
using testing::Fusion;
using testing::kFusions;
using testing::Norm;

/// Also of NaN and of zeros with a sign.
template <class T>
void expect_identical(const Array<T>& found, const Array<T>& expected, const char* what) {
  ASSERT_EQ(found.shape(), expected.shape());
  for (std::size_t e = 0; e < found.size(); ++e)
    ASSERT_EQ(std::memcmp(&found[e], &expected[e], sizeof(T)), 0)
        << what << ", element " << e << ": " << found[e] << " and " << expected[e];
}

template <class T>
void expect_fused_as_separate(Norm<T> fused, const Fusion& fusion, Mode mode) {
  SCOPED_TRACE(fused.x.shape().text() + ", " + fusion.text() + (mode == Mode::add ? ", adding" : ""));
  const Device cpu = Device::cpu({.threads = 2});
  CpuStream stream({.threads = 2});
  Norm<T> separate = fused;
  forward(cpu, fused, fusion);
  backward(cpu, fused, fusion, mode);

  const Fusion plain{.training = fusion.training, .relu = false, .residual = false};
  forward(cpu, separate, plain);
  if (fusion.residual) add(stream, separate.y.view(), separate.residual.view(), separate.y.view(), 1, 1);
  if (fusion.relu) {
    relu_forward(stream, separate.y.view(), separate.y.view());
    relu_backward(stream, separate.dy.view(), separate.y.view(), separate.dy.grad());
  }
  backward(cpu, separate, plain, mode, {true, false, true, true});
  scale(stream, separate.dy.view(), 1, separate.dresidual.grad(mode));

  expect_identical(fused.y, separate.y, "y");
  expect_identical(fused.mean, separate.mean, "mean");
  expect_identical(fused.inverse_std, separate.inverse_std, "inverse_std");
  expect_identical(fused.running_mean, separate.running_mean, "running_mean");
  expect_identical(fused.running_var, separate.running_var, "running_var");
  expect_identical(fused.dx, separate.dx, "dx");
  expect_identical(fused.dresidual, separate.dresidual, "dresidual");
  expect_identical(fused.dgamma, separate.dgamma, "dgamma");
  expect_identical(fused.dbeta, separate.dbeta, "dbeta");
}

TEST(BatchNormFused, HasTheBitsOfSeparateOps) {
  // Channels below, at and beyond the lanes of a sum; rows within one block and over several, and more of
  // both than a thread takes at once.
  constexpr std::int64_t kShapes[][2] = {{2, 1}, {3, 3}, {33, 17}, {65, 16}, {2053, 2}, {700, 65}};
  for (const auto& [rows, channels] : kShapes)
    for (const Fusion& fusion : kFusions)
      for (const Mode mode : {Mode::write, Mode::add}) {
        expect_fused_as_separate(Norm<float>(rows, channels), fusion, mode);
        expect_fused_as_separate(Norm<double>(rows, channels), fusion, mode);
      }
}

TEST(BatchNormFused, NanIsNotHidden) {
  Norm<float> norm(40, 18);
  norm.x[5] = std::numeric_limits<float>::quiet_NaN();
  norm.residual[100] = std::numeric_limits<float>::quiet_NaN();
  for (const Fusion& fusion : kFusions) expect_fused_as_separate(norm, fusion, Mode::write);
  forward(Device::cpu(), norm, {.training = true, .relu = true, .residual = true});
  EXPECT_TRUE(std::isnan(norm.y[5]));
  EXPECT_TRUE(std::isnan(norm.y[100]));
}

TEST(BatchNormFused, UnwantedGradientsAreLeftAlone) {
  const Device cpu = Device::cpu({.threads = 2});
  for (const bool training : {true, false}) {
    const Fusion fusion{.training = training, .relu = true, .residual = true};
    Norm<float> before(700, 65);
    forward(cpu, before, fusion);
    Norm<float> all = before;
    backward(cpu, all, fusion, Mode::write);
    Norm<float> some = before;
    backward(cpu, some, fusion, Mode::write, {false, true, false, false});
    expect_identical(some.dresidual, all.dresidual, "dresidual alone");
    expect_identical(some.dx, before.dx, "dx unwanted");
    expect_identical(some.dgamma, before.dgamma, "dgamma unwanted");
    some = before;
    backward(cpu, some, fusion, Mode::write, {true, false, false, false});
    expect_identical(some.dx, all.dx, "dx alone");
    expect_identical(some.dresidual, before.dresidual, "dresidual unwanted");
  }
}

// x is its own residual: its gradient is the sum of both.
TEST(BatchNormFused, BothGradientsMayGoToOneArray) {
  CpuStream stream({.threads = 2});
  const Device cpu = Device::cpu({.threads = 2});
  const Fusion fusion{.training = true, .relu = true, .residual = true};
  Norm<double> norm(700, 65);
  forward(cpu, norm, fusion);
  Norm<double> apart = norm;
  backward(cpu, apart, fusion, Mode::write);
  add(stream, apart.dx.view(), apart.dresidual.view(), apart.dx.view(), 1, 1);
  batch_norm_backward(stream, norm.dy.view(), norm.x.view(), norm.y.view(), norm.gamma.view(),
                      norm.mean.view(), norm.inverse_std.view(), norm.dx.grad(Mode::write),
                      norm.dx.grad(Mode::add), norm.dgamma.grad(), norm.dbeta.grad(), {.relu = true});
  expect_identical(norm.dx, apart.dx, "sum");
}

}  // namespace
}  // namespace convoy
