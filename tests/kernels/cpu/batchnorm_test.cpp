// Tests of batch norm on the CPU, compared with formulas in f64 and with PyTorch.
#include "convoy/kernels/batchnorm.h"

#include <malloc.h>

#include <string>

#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;
using testing::kEps;

/// The arguments of one batch norm.
template <class T>
struct Norm {
  Array<T> x, gamma, beta, dy;
  Array<T> y, mean, inverse_std, coefficients, running_mean, running_var, dx, dgamma, dbeta;
  BatchNormOptions options;

  Norm(std::int64_t rows, std::int64_t channels, double offset = 0)
      : x(Array<T>::random({rows, channels}, 1, 1)),
        gamma(Array<T>::random({channels}, 2)),
        beta(Array<T>::random({channels}, 3)),
        dy(Array<T>::random({rows, channels}, 4, 3)),
        y({rows, channels}, 9),
        mean({channels}),
        inverse_std({channels}),
        coefficients({2, channels}),
        running_mean(Array<T>::random({channels}, 5)),
        running_var(Array<T>({channels}, 2)),
        dx(Array<T>::random({rows, channels}, 6)),
        dgamma(Array<T>::random({channels}, 7)),
        dbeta(Array<T>::random({channels}, 8)) {
    for (T& value : x) value = static_cast<T>(value + offset);
  }
  std::int64_t rows() const { return x.shape()[0]; }
  std::int64_t channels() const { return x.shape()[1]; }
  double n() const { return static_cast<double>(rows()); }

  void forward(CpuStream& stream) { forward(stream, x.view(), y.view()); }
  void forward(CpuStream& stream, ConstView in, View out) {
    const kernels::SavedStatistics saved{mean.view(), inverse_std.view(), coefficients.view()};
    kernels::batch_norm_statistics(stream, layer(), in, saved);
    kernels::batch_norm_normalize(stream, layer(), in, {}, saved, out);
  }
  void inference(CpuStream& stream) {
    kernels::batch_norm_inference(stream, layer(), x.view(), {}, y.view());
  }
  void backward(CpuStream& stream, GradMode mode) {
    backward(stream, {.x = dx.grad(mode), .gamma = dgamma.grad(mode), .beta = dbeta.grad(mode)});
  }
  void backward(CpuStream& stream, const kernels::BatchNormGradients& gradients) {
    kernels::batch_norm_backward(stream, layer(), {dy.view(), x.view(), y.view()},
                                 {mean.view(), inverse_std.view(), {}}, gradients);
  }
  void inference_backward(CpuStream& stream, GradMode mode) {
    inference_backward(stream, {.x = dx.grad(mode), .gamma = dgamma.grad(mode), .beta = dbeta.grad(mode)});
  }
  void inference_backward(CpuStream& stream, const kernels::BatchNormGradients& gradients) {
    kernels::batch_norm_inference_backward(stream, layer(), {dy.view(), x.view(), y.view()}, gradients);
  }
  kernels::BatchNorm layer() {
    return {gamma.view(), beta.view(), running_mean.view(), running_var.view(), options};
  }
  double at(const Array<T>& matrix, std::int64_t row, std::int64_t c) const {
    return static_cast<double>(matrix[static_cast<std::size_t>(row * channels() + c)]);
  }
  double of(const Array<T>& vector, std::int64_t c) const {
    return static_cast<double>(vector[static_cast<std::size_t>(c)]);
  }
};

struct Moments {
  double mean, var;
};

// Computes the statistics in two passes in f64.
template <class T>
Moments moments(const Norm<T>& norm, std::int64_t c) {
  double sum = 0;
  for (std::int64_t row = 0; row < norm.rows(); ++row) sum += norm.at(norm.x, row, c);
  const double mean = sum / norm.n();
  double squares = 0;
  for (std::int64_t row = 0; row < norm.rows(); ++row) {
    const double difference = norm.at(norm.x, row, c) - mean;
    squares += difference * difference;
  }
  return {mean, squares / norm.n()};
}

// Expects that |found - expected| is at most kRoundings roundings of numbers of magnitude `size`.
void expect_rounded(double found, double expected, double size, double eps, const std::string& what) {
  constexpr double kRoundings = 4;
  ASSERT_NEAR(found, expected, kRoundings * eps * (std::abs(expected) + size)) << what;
}

// eps is that of T for values that are rounded to T once or a few times. Statistics are summed in f64, whose
// error is below 1e-12 (range of x)^2 for up to 1e4 rows.
template <class T>
void check_forward(Norm<T> norm, double eps) {
  SCOPED_TRACE(norm.x.shape().text());
  CpuStream stream({.threads = 2});
  const Norm<T> before = norm;
  norm.forward(stream);
  const double momentum = norm.options.momentum;
  for (std::int64_t c = 0; c < norm.channels(); ++c) {
    const Moments expected = moments(norm, c);
    const double inverse_std = 1 / std::sqrt(expected.var + norm.options.epsilon);
    expect_rounded(norm.of(norm.mean, c), expected.mean, 1e-6, eps, "mean");
    expect_rounded(norm.of(norm.inverse_std, c), inverse_std, 0, eps, "inverse_std");
    expect_rounded(norm.of(norm.running_mean, c),
                   (1 - momentum) * before.of(before.running_mean, c) + momentum * expected.mean, 1, eps,
                   "running_mean");
    expect_rounded(norm.of(norm.running_var, c),
                   (1 - momentum) * before.of(before.running_var, c) +
                       momentum * expected.var * norm.n() / (norm.n() - 1),
                   1, eps, "running_var");
    for (std::int64_t row = 0; row < norm.rows(); ++row) {
      const double normalized =
          (norm.at(norm.x, row, c) - expected.mean) * inverse_std * norm.of(norm.gamma, c);
      // The tolerance has no term for the size of the mean, which cancels exactly.
      expect_rounded(norm.at(norm.y, row, c), normalized + norm.of(norm.beta, c),
                     std::abs(normalized) + std::abs(norm.of(norm.beta, c)), eps, "y");
    }
  }
}

// Computes backward by its formula from the saved statistics, or with constant statistics (inference).
template <class T>
void check_backward(Norm<T> norm, bool training, GradMode mode, double eps) {
  SCOPED_TRACE(norm.x.shape().text() + (training ? ", training" : ", inference"));
  CpuStream stream({.threads = 2});
  if (training) norm.forward(stream);
  const Norm<T> before = norm;
  if (training)
    norm.backward(stream, mode);
  else
    norm.inference_backward(stream, mode);
  const auto start = [&](double value) { return mode == GradMode::accumulate ? value : 0.0; };
  for (std::int64_t c = 0; c < norm.channels(); ++c) {
    const double mean = norm.of(training ? norm.mean : norm.running_mean, c);
    const double inverse_std = training ? norm.of(norm.inverse_std, c)
                                        : 1 / std::sqrt(norm.of(norm.running_var, c) + norm.options.epsilon);
    const auto normalized = [&](std::int64_t row) { return (norm.at(norm.x, row, c) - mean) * inverse_std; };
    double dgamma = 0, dbeta = 0;
    for (std::int64_t row = 0; row < norm.rows(); ++row) {
      dbeta += norm.at(norm.dy, row, c);
      dgamma += norm.at(norm.dy, row, c) * normalized(row);
    }
    // Sums of up to n terms of size 1 in f64, rounded to T once.
    expect_rounded(norm.of(norm.dbeta, c), start(before.of(before.dbeta, c)) + dbeta, norm.n(), eps, "dbeta");
    expect_rounded(norm.of(norm.dgamma, c), start(before.of(before.dgamma, c)) + dgamma, norm.n(), eps,
                   "dgamma");
    for (std::int64_t row = 0; row < norm.rows(); ++row) {
      const double factor = norm.of(norm.gamma, c) * inverse_std;
      const double direct = factor * norm.at(norm.dy, row, c);
      const double through_mean = training ? -factor * dbeta / norm.n() : 0;
      const double through_var = training ? -factor * normalized(row) * dgamma / norm.n() : 0;
      const double old = start(before.at(before.dx, row, c));
      expect_rounded(norm.at(norm.dx, row, c), old + direct + through_mean + through_var,
                     std::abs(direct) + std::abs(through_mean) + std::abs(through_var) + std::abs(old), eps,
                     "dx");
    }
  }
}

const std::int64_t kShapes[][2] = {{2, 1},   {3, 3},   {31, 16},  {32, 5},
                                   {33, 17}, {65, 33}, {2053, 2}, {100, 64}};
constexpr double kEps64 =
    64 * std::numeric_limits<double>::epsilon();  // one pass with sums in f64 compared with two passes

TEST(BatchNorm, ForwardEqualsTwoPassesInDouble) {
  for (const auto& [rows, channels] : kShapes) {
    check_forward(Norm<float>(rows, channels), kEps);
    check_forward(Norm<double>(rows, channels), kEps64);
  }
}

TEST(BatchNorm, LargeMeanDoesNotCancel) {
  for (const auto& [rows, channels] : kShapes) check_forward(Norm<float>(rows, channels, 1e4), kEps);
}

TEST(BatchNorm, BackwardEqualsItsFormula) {
  for (const auto& [rows, channels] : kShapes)
    for (const bool training : {true, false})
      for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
        check_backward(Norm<float>(rows, channels), training, mode, kEps);
        check_backward(Norm<double>(rows, channels), training, mode, kEps64);
      }
}

TEST(BatchNorm, DoesNotWriteUnwantedGradients) {
  CpuStream stream({.threads = 2});
  Norm<float> norm(40, 18);
  norm.forward(stream);
  Norm<float> all = norm;
  all.backward(stream, GradMode::overwrite);
  Norm<float> some = norm;
  norm.backward(stream, {.x = some.dx.grad()});
  expect_same_bits(some.dx, all.dx);
  norm.backward(stream, {.gamma = some.dgamma.grad(), .beta = some.dbeta.grad()});
  expect_same_bits(some.dgamma, all.dgamma);
  expect_same_bits(some.dbeta, all.dbeta);
  norm.inference_backward(stream, {.gamma = some.dgamma.grad()});
  norm.inference_backward(stream, GradMode::overwrite);
  expect_same_bits(some.dgamma, norm.dgamma);
}

// The results of torch.nn.BatchNorm1d(3, eps=1e-3, momentum=0.3) in double after four training steps, of its
// last backward, and of evaluation mode. x[r][c] = ((7 r + 3 c + 5 step) mod 11) / 4 - 1 + c, dy[r][c] = ((3
// r + 2 c) mod 5) - 1.5.
TEST(BatchNorm, EqualsPyTorchOverSeveralSteps) {
  CpuStream stream({.threads = 1});
  Norm<double> norm(6, 3);
  norm.options = {.epsilon = 1e-3, .momentum = 0.3};
  norm.gamma = Array<double>({3}, {1, 0.5, -2});
  norm.beta = Array<double>({3}, {0.25, -1, 3});
  norm.running_mean = Array<double>({3}, 0);
  norm.running_var = Array<double>({3}, 1);
  for (int step = 0; step < 4; ++step) {
    for (int r = 0; r < 6; ++r)
      for (int c = 0; c < 3; ++c) {
        norm.x[static_cast<std::size_t>(r * 3 + c)] = ((7 * r + 3 * c + 5 * step) % 11) / 4.0 - 1 + c;
        norm.dy[static_cast<std::size_t>(r * 3 + c)] = ((3 * r + 2 * c) % 5) - 1.5;
      }
    norm.forward(stream);
  }
  norm.backward(stream, GradMode::overwrite);
  constexpr double kPrinted = 1e-10;  // the PyTorch results are printed with 12 digits
  expect_near(norm.running_mean, Array<double>({3}, {0.177025, 1.0623125, 1.6955625}), kPrinted);
  expect_near(norm.running_var, Array<double>({3}, {0.81705125, 0.753271875, 0.808271875}), kPrinted);
  expect_near(
      norm.y,
      Array<double>({6, 3}, {-0.0659750869785, -0.856985396022, 0.278054307495, -1.32987543489,
                             -1.54345549512, 2.69756158972, 0.881950173957, -0.3421328217, 5.11706887195,
                             -0.381950173957, -1.0286029208, 0.882931128051, 1.82987543489, -1.71507301989,
                             3.30243841028, 0.565975086978, -0.513750346474, 5.72194569251}),
      kPrinted);
  expect_near(
      norm.dx,
      Array<double>({6, 3}, {-2.33784549178, -0.0224647910535, -2.20670552582, 0.52847590426, -1.28757399219,
                             1.00936982866, -0.379910408092, 0.58313206025, 4.22544518313, 2.48641098795,
                             -0.681977140885, -0.192933046084, 1.5780246756, 1.48526415346, 3.02314230839,
                             -1.87515566793, -0.0763802895818, -5.85831874827}),
      kPrinted);
  expect_near(norm.dgamma, Array<double>({3}, {-3.47572595676, 0.686470099096, 3.32682251306}), kPrinted);
  expect_near(norm.dbeta, Array<double>({3}, {1, 3, 5}), kPrinted);
  norm.inference(stream);
  expect_near(
      norm.y,
      Array<double>({6, 3}, {0.0542758810523, -0.604089356291, -1.01166459878, -1.0513539393, -1.17980237086,
                             1.21155709706, 0.883498246316, -0.172304595362, 3.43477879289, -0.222131574035,
                             -0.748017609934, -0.455859174817, 1.71272061158, -1.32373062451, 1.76736252102,
                             0.607090791228, -0.316232849005, 3.99058421685}),
      kPrinted);
}

TEST(BatchNorm, BitsDoNotDependOnThreads) {
  CpuStream one({.threads = 1});
  CpuStream three({.threads = 3});
  Norm<float> a(3001, 19);
  Norm<float> b = a;
  a.forward(one);
  b.forward(three);
  a.backward(one, GradMode::overwrite);
  b.backward(three, GradMode::overwrite);
  expect_same_bits(a.y, b.y);
  expect_same_bits(a.running_var, b.running_var);
  expect_same_bits(a.dx, b.dx);
  expect_same_bits(a.dgamma, b.dgamma);
  expect_same_bits(a.dbeta, b.dbeta);
}

TEST(BatchNorm, EmptyBatch) {
  CpuStream stream({.threads = 2});
  Norm<float> norm(0, 5);
  const Norm<float> before = norm;
  norm.forward(stream);
  norm.inference(stream);
  expect_same_bits(norm.running_mean, before.running_mean);
  expect_same_bits(norm.running_var, before.running_var);
  norm.backward(stream, GradMode::accumulate);
  expect_same_bits(norm.dgamma, before.dgamma);
  norm.backward(stream, GradMode::overwrite);
  expect_near(norm.dgamma, Array<float>({5}, 0), 0);
  expect_near(norm.dbeta, Array<float>({5}, 0), 0);
}

TEST(BatchNorm, PropagatesNan) {
  CpuStream stream({.threads = 1});
  Norm<float> norm(8, 2);
  norm.x[5] = std::numeric_limits<float>::quiet_NaN();  // channel 1
  norm.forward(stream);
  EXPECT_TRUE(std::isnan(norm.inverse_std[1]));
  EXPECT_TRUE(std::isnan(norm.y[1]));
  EXPECT_FALSE(std::isnan(norm.y[0]));
}

TEST(BatchNorm, ImagesAreRowsOfChannels) {
  CpuStream stream({.threads = 2});
  Norm<float> rows(2 * 3 * 4, 5);
  Norm<float> images = rows;
  rows.forward(stream);
  View x = images.x.view();
  View y = images.y.view();
  x.shape = y.shape = Shape{2, 3, 4, 5};
  images.forward(stream, x, y);
  expect_same_bits(images.y, rows.y);
}

TEST(BatchNorm, SteadyStateAllocatesNoMemory) {
  CpuStream stream({.threads = 1});
  Norm<float> norm(1024, 32);
  const auto step = [&] {
    norm.forward(stream);
    norm.backward(stream, GradMode::overwrite);
  };
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  for (int i = 0; i < 3; ++i) step();
  const std::size_t before = in_use();
  for (int i = 0; i < 50; ++i) step();
  EXPECT_LE(in_use(), before);
}

}  // namespace
}  // namespace convoy
