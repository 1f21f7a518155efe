#include "convoy/engine/optim/muon.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "tests/engine/optim/random_values.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/make_optimizer.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;

using testing::random_values;
using Values = std::vector<double>;

/// A row-major matrix.
struct Matrix {
  std::int64_t rows, columns;
  Values values;

  double& at(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i * columns + j)]; }
  double norm() const {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return std::sqrt(sum);
  }
};

Matrix random_matrix(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  return {rows, columns, random_values(rows * columns, seed)};
}

Matrix product(Matrix a, Matrix b) {
  Matrix c{a.rows, b.columns, Values(static_cast<std::size_t>(a.rows * b.columns))};
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < b.columns; ++j)
      for (std::int64_t k = 0; k < a.columns; ++k) c.at(i, j) += a.at(i, k) * b.at(k, j);
  return c;
}

/// Returns min(rows, columns) singular values in descending order, by one-sided Jacobi rotations.
Values singular_values(Matrix m) {
  if (m.rows < m.columns) {
    Matrix transposed{m.columns, m.rows, Values(m.values.size())};
    for (std::int64_t i = 0; i < m.rows; ++i)
      for (std::int64_t j = 0; j < m.columns; ++j) transposed.at(j, i) = m.at(i, j);
    m = transposed;
  }
  const auto dot = [&](std::int64_t p, std::int64_t q) {
    double sum = 0;
    for (std::int64_t i = 0; i < m.rows; ++i) sum += m.at(i, p) * m.at(i, q);
    return sum;
  };
  for (int sweep = 0; sweep < 30; ++sweep)
    for (std::int64_t p = 0; p < m.columns; ++p)
      for (std::int64_t q = p + 1; q < m.columns; ++q) {
        const double angle = 0.5 * std::atan2(2 * dot(p, q), dot(p, p) - dot(q, q));
        for (std::int64_t i = 0; i < m.rows; ++i) {
          const double u = m.at(i, p), v = m.at(i, q);
          m.at(i, p) = std::cos(angle) * u + std::sin(angle) * v;
          m.at(i, q) = std::cos(angle) * v - std::sin(angle) * u;
        }
      }
  Values values;
  for (std::int64_t p = 0; p < m.columns; ++p) values.push_back(std::sqrt(dot(p, p)));
  std::sort(values.rbegin(), values.rend());
  return values;
}

/// Returns the result of the iterations for a matrix divided by its Frobenius norm.
Matrix orthogonalized(Matrix m, int steps, DType dtype = DType::f64) {
  const double norm = m.norm();
  for (double& value : m.values) value /= norm;
  const Tensor x = Tensor::from(m.values, {1, m.rows, m.columns}, Device::cpu()).to(dtype);
  if (dtype == DType::f64) {
    const Tensor copy = x.clone();
    optim::newton_schulz(copy, steps);
    m.values = copy.to_vector<double>();
  } else {
    optim::newton_schulz(x, steps);
    m.values = x.to(DType::f64).to_vector<double>();
  }
  return m;
}

/// The polynomial of one iteration, applied `steps` times.
double iterated(double s, int steps) {
  for (int step = 0; step < steps; ++step) s = 3.4445 * s - 4.7750 * s * s * s + 2.0315 * s * s * s * s * s;
  return s;
}

struct Sides {
  std::int64_t rows, columns;
};

TEST(NewtonSchulz, MapsSingularValuesCloseToOne) {
  for (const auto& [rows, columns] : {Sides{4, 4}, Sides{3, 11}, Sides{11, 3}, Sides{16, 144}, Sides{40, 9},
                                      Sides{1, 7}, Sides{7, 1}, Sides{24, 24}}) {
    const Matrix start = random_matrix(rows, columns, static_cast<std::uint64_t>(rows * 1000 + columns));
    Values expected = singular_values(start);
    for (double& value : expected) value = iterated(value / start.norm(), 5);
    std::sort(expected.rbegin(), expected.rend());
    const Values found = singular_values(orthogonalized(start, 5));
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      // Five iterations amplify an error of the start by at most 3.4445^5 = 485.
      EXPECT_NEAR(found[i], expected[i], 485 * 100 * std::numeric_limits<double>::epsilon())
          << rows << "x" << columns;
      if (rows != columns) {  // the smallest singular values of a random square matrix may be too small
        EXPECT_GT(found[i], 0.68) << rows << "x" << columns;
      }
      EXPECT_LT(found[i], 1.21) << rows << "x" << columns;
    }
  }
}

TEST(NewtonSchulz, KeepsTheRankOfARankDeficientMatrix) {
  // 8 x 20 of rank 3: the other five singular values are zero apart from rounding, which grows by 3.4445^5.
  const Matrix start = product(random_matrix(8, 3, 1), random_matrix(3, 20, 2));
  const Values found = singular_values(orthogonalized(start, 5));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_GT(found[i], 0.68);
    EXPECT_LT(found[i], 1.21);
  }
  for (std::size_t i = 3; i < found.size(); ++i)
    EXPECT_LT(found[i], 485 * 100 * std::numeric_limits<double>::epsilon());
}

TEST(NewtonSchulz, LeavesZeroAndAcceptsAnEmptyBatch) {
  const Tensor zero = Tensor::zeros({2, 3, 4}, DType::f32, Device::cpu());
  optim::newton_schulz(zero, 5);
  EXPECT_THAT(zero.to_vector<float>(), ::testing::Each(0.0f));
  optim::newton_schulz(Tensor::zeros({0, 3, 4}, DType::f32, Device::cpu()), 5);
}

TEST(NewtonSchulz, RejectsAMatrixWithoutABatch) {
  EXPECT_THAT(message_of<UsageError>([] {
                optim::newton_schulz(Tensor::zeros({3, 4}, DType::f32, Device::cpu()), 5);
              }),
              HasSubstr("found the shape [3, 4], expected [batch, rows, columns]"));
}

// Errors of singular values that are far from 0 are amplified by a factor of about 2 at most. The results of the 15
// GEMMs of five iterations are rounded once each, with a relative error of 2^-9 for bf16 in the root mean square.
// In f32 the sums are rounded too, but of few terms.
TEST(NewtonSchulz, IsAccurateInF32AndUsableInBf16) {
  const Matrix start = random_matrix(8, 32, 3);
  const Matrix expected = orthogonalized(start, 5);
  for (const auto& [dtype, unit] : {std::pair{DType::f32, 0x1p-24}, std::pair{DType::bf16, 0x1p-9}}) {
    Matrix difference = orthogonalized(start, 5, dtype);
    for (std::size_t i = 0; i < difference.values.size(); ++i) difference.values[i] -= expected.values[i];
    EXPECT_LT(difference.norm() / expected.norm(), 2 * 15 * unit) << to_string(dtype);
    EXPECT_GT(difference.norm(), 0) << to_string(dtype);
  }
}

/// Returns a parameter with random values.
nn::NamedParameter parameter(const std::string& name, const Shape& shape, nn::ParameterKind kind,
                             std::uint64_t seed = 1, DType dtype = DType::f64) {
  const Tensor values = Tensor::from(random_values(shape.numel(), seed), shape, Device::cpu());
  return {name, Variable(values.to(dtype).clone(), true), kind};
}

void give_gradient(const nn::NamedParameter& p, std::uint64_t seed, double factor = 1) {
  Values gradient = random_values(p.variable.shape().numel(), seed);
  for (double& value : gradient) value *= factor;
  const Tensor values = Tensor::from(gradient, p.variable.shape(), Device::cpu());
  backward(sum(p.variable * Variable(values.to(p.variable.dtype()))));
}

Values values_of(const nn::NamedParameter& p) {
  return p.variable.value().to(DType::f64).to_vector<double>();
}

/// Returns the names of all parameters of the groups, separated by spaces.
std::string names_of(const std::vector<optim::ParameterGroup>& groups) {
  std::string names;
  for (const optim::ParameterGroup& group : groups)
    for (const nn::NamedParameter& p : group.parameters) names += (names.empty() ? "" : " ") + p.name;
  return names;
}

const std::vector<nn::NamedParameter>& network() {
  static const std::vector<nn::NamedParameter> all{
      parameter("conv.weight", {4, 3, 3, 2}, nn::ParameterKind::filter),
      parameter("conv.bias", {4}, nn::ParameterKind::bias),
      parameter("bn.weight", {4}, nn::ParameterKind::norm_scale),
      parameter("fc.weight", {5, 4}, nn::ParameterKind::weight),
      parameter("scale", {4}, nn::ParameterKind::weight),
      parameter("head.weight", {3, 5}, nn::ParameterKind::weight)};
  return all;
}

TEST(MuonGroups, MatricesAreFiltersAndWeightsWithoutTheHead) {
  const optim::MuonGroups groups =
      optim::muon_groups(optim::decay_groups(network(), 0.1), {.sgd_lr_scale = 4});
  EXPECT_EQ(names_of(groups.matrices), "conv.weight fc.weight");
  EXPECT_EQ(names_of(groups.others), "head.weight scale conv.bias bn.weight");
  ASSERT_EQ(groups.others.size(), 3u);
  EXPECT_EQ(groups.matrices[0].weight_decay, 0.1);
  EXPECT_EQ(groups.matrices[0].lr_scale, 1);
  EXPECT_EQ(groups.others[0].weight_decay, 0.1 / 4);
  EXPECT_EQ(groups.others[0].lr_scale, 4);
  EXPECT_EQ(groups.others[2].weight_decay, 0);
}

TEST(MuonGroups, BiasesAndNormsMayHaveARateOfTheirOwn) {
  const optim::MuonGroups groups = optim::muon_groups(optim::decay_groups(network(), 0.1, /*decay_all=*/true),
                                                      {.sgd_lr_scale = 4, .bias_lr_scale = 0.5});
  ASSERT_EQ(groups.others.size(), 2u);
  EXPECT_EQ(names_of({groups.others[0]}), "head.weight");
  EXPECT_EQ(groups.others[0].lr_scale, 4);
  EXPECT_EQ(groups.others[0].weight_decay, 0.1 / 4);
  EXPECT_EQ(names_of({groups.others[1]}), "conv.bias bn.weight scale");
  EXPECT_EQ(groups.others[1].lr_scale, 2);
  EXPECT_EQ(groups.others[1].weight_decay, 0.1 / 2);
  EXPECT_THROW(optim::muon_groups(groups.matrices, {.bias_lr_scale = 0}), UsageError);
}

TEST(MuonGroups, HeadIsAMatrixIfAsked) {
  const optim::MuonGroups groups = optim::muon_groups(optim::decay_groups(network(), 0), {.head = true});
  EXPECT_EQ(names_of(groups.matrices), "conv.weight fc.weight head.weight");
}

optim::MuonGroups one_matrix(const nn::NamedParameter& p, double weight_decay = 0) {
  return {.matrices = {{.parameters = {p}, .weight_decay = weight_decay}}, .others = {}};
}

TEST(Muon, EachGroupUsesItsOwnLearningRate) {
  const auto moves = [](int rate) {  // how far a matrix and a bias move
    const nn::NamedParameter p = parameter("p", {4, 6}, nn::ParameterKind::weight);
    const nn::NamedParameter b = parameter("b", {4}, nn::ParameterKind::bias);
    const Tensor before = p.variable.value().clone(), bias_before = b.variable.value().clone();
    optim::Muon optimizer(
        {.matrices = {{.parameters = {p}, .rate = rate}}, .others = {{.parameters = {b}, .rate = 1 - rate}}});
    give_gradient(p, 7);
    give_gradient(b, 8);
    optimizer.step(Tensor::from(std::vector<double>{0.125, 0.5}, {2}, Device::cpu()));
    return std::pair((Variable(before) - Variable(p.variable.value())).value().to_vector<double>(),
                     (Variable(bias_before) - Variable(b.variable.value())).value().to_vector<double>());
  };
  const auto [slow, fast_bias] = moves(0);
  const auto [fast, slow_bias] = moves(1);
  for (std::size_t i = 0; i < slow.size(); ++i) EXPECT_NEAR(fast[i], 4 * slow[i], 1e-14);
  for (std::size_t i = 0; i < slow_bias.size(); ++i) EXPECT_NEAR(fast_bias[i], 4 * slow_bias[i], 1e-14);
  EXPECT_GT(std::abs(slow[0]), 1e-3);
  EXPECT_GT(std::abs(slow_bias[0]), 1e-3);
}

TEST(Muon, NormalizeRescalesToTheRootOfTheNumberOfRows) {
  const nn::NamedParameter p = parameter("p", {4, 3, 3, 2}, nn::ParameterKind::filter);
  optim::Muon optimizer(one_matrix(p), {.normalize = true});
  give_gradient(p, 7);
  optimizer.step(0);  // without an update
  double sum = 0;
  for (const double value : values_of(p)) sum += value * value;
  EXPECT_NEAR(std::sqrt(sum), 2, 1e-14);
}

TEST(Muon, StepDoesNotDependOnTheScaleOfTheGradient) {
  const nn::NamedParameter one = parameter("p", {5, 3}, nn::ParameterKind::weight),
                           other = parameter("p", {5, 3}, nn::ParameterKind::weight);
  optim::Muon first(one_matrix(one)), second(one_matrix(other));
  for (const std::uint64_t step : {11u, 12u, 13u}) {
    give_gradient(one, step);
    give_gradient(other, step, 0x1p-10);  // a power of two: no rounding differs
    first.step(0.1);
    second.step(0.1);
  }
  EXPECT_EQ(values_of(one), values_of(other));
}

TEST(Muon, MatricesOfABatchAreIndependent) {
  const auto make = [](const char* name, std::uint64_t seed) {
    return parameter(name, {6, 4}, nn::ParameterKind::weight, seed);
  };
  const nn::NamedParameter a = make("a", 1), b = make("b", 2), alone = make("b", 2);
  optim::Muon both({.matrices = {{.parameters = {a}}, {.parameters = {b}, .lr_scale = 2}}, .others = {}});
  optim::Muon one({.matrices = {{.parameters = {alone}, .lr_scale = 2}}, .others = {}});
  give_gradient(a, 21);
  give_gradient(b, 22);
  give_gradient(alone, 22);
  both.step(0.1);
  one.step(0.1);
  EXPECT_EQ(values_of(b), values_of(alone));
  const Values before = values_of(a);
  give_gradient(b, 23);
  both.step(0.1);  // a has no new gradient
  EXPECT_EQ(values_of(a), before);
  EXPECT_EQ(both.steps(), 2);
}

TEST(Muon, OtherParametersAreSteppedBySgd) {
  const nn::NamedParameter p = parameter("p", {4, 3}, nn::ParameterKind::weight),
                           bias = parameter("bias", {5}, nn::ParameterKind::bias),
                           same = parameter("bias", {5}, nn::ParameterKind::bias);
  optim::Muon muon({.matrices = {{.parameters = {p}}},
                    .others = {{.parameters = {bias}, .lr_scale = 3, .weight_decay = 0.1}}},
                   {.sgd_momentum = 0.8});
  optim::Sgd sgd({{.parameters = {same}, .lr_scale = 3, .weight_decay = 0.1}},
                 {.momentum = 0.8, .nesterov = true});
  for (const std::uint64_t step : {31u, 32u, 33u}) {
    give_gradient(p, step);
    for (const nn::NamedParameter* each : {&bias, &same}) give_gradient(*each, step + 100);
    muon.step(0.02);
    sgd.step(0.02);
  }
  EXPECT_EQ(values_of(bias), values_of(same));
}

TEST(Muon, ClippingAndTheSkipFlagApply) {
  const nn::NamedParameter p = parameter("p", {4, 3}, nn::ParameterKind::weight, 1, DType::f32);
  optim::Muon optimizer(one_matrix(p), {});
  optim::LossScaler scaler(p.variable.context(), DType::f32);
  give_gradient(p, 41, std::numeric_limits<double>::infinity());
  const Values before = values_of(p);
  optimizer.step(0.1, {.clip_norm = 1.0, .scaler = &scaler});
  EXPECT_EQ(values_of(p), before);
  EXPECT_EQ(optimizer.steps(), 0);
  EXPECT_THAT(optimizer.state()[0].tensor.to_vector<float>(), ::testing::Each(0.0f));
  give_gradient(p, 42);
  optimizer.step(0.1, {.clip_norm = 1.0, .scaler = &scaler});
  EXPECT_NE(values_of(p), before);
  EXPECT_EQ(optimizer.steps(), 1);
}

TEST(Muon, UpdatesLowPrecisionCopies) {
  const nn::NamedParameter p = parameter("p", {4, 3}, nn::ParameterKind::weight, 1, DType::f32);
  p.variable.set_low_precision_copy(p.variable.value().to(DType::bf16));
  const Tensor copy = p.variable.low_precision_copy();
  optim::Muon optimizer(one_matrix(p, 0.1));
  give_gradient(p, 51);
  optimizer.step(0.1);
  EXPECT_EQ(copy.to(DType::f64).to_vector<double>(),
            p.variable.value().to(DType::bf16).to(DType::f64).to_vector<double>());
}

TEST(Muon, StateHasTheMomentumOfAllParameters) {
  const auto names = [](double sgd_momentum) {
    const optim::Muon optimizer(optim::muon_groups(optim::decay_groups(network(), 0)),
                                {.sgd_momentum = sgd_momentum});
    std::vector<std::string> found;
    for (const optim::NamedState& state : optimizer.state()) found.push_back(state.name);
    return found;
  };
  EXPECT_THAT(names(0.9), ElementsAre("momentum/conv.weight", "momentum/fc.weight", "momentum/head.weight",
                                      "momentum/scale", "momentum/conv.bias", "momentum/bn.weight"));
  EXPECT_THAT(names(0), ElementsAre("momentum/conv.weight", "momentum/fc.weight"));
}

TEST(Muon, RejectsInvalidSettings) {
  const nn::NamedParameter p = parameter("p", {4, 3}, nn::ParameterKind::weight);
  EXPECT_THROW(optim::Muon(one_matrix(p), {.momentum = 1}), UsageError);
  EXPECT_THROW(optim::Muon(one_matrix(p), {.momentum = 0}), UsageError);
  EXPECT_THROW(optim::Muon(one_matrix(p), {.ns_steps = 0}), UsageError);
  EXPECT_THROW(optim::Muon(one_matrix(p), {.sgd_momentum = 1}), UsageError);
  EXPECT_THROW(optim::muon_groups({{.parameters = {p}}}, {.sgd_lr_scale = 0}), UsageError);
  EXPECT_THAT(message_of<UsageError>([&] { optim::Muon(one_matrix(p, 0.5), {.normalize = true}); }),
              HasSubstr("weight decay 0.5 of a group of matrices has no effect with normalize; expected 0"));
  const nn::NamedParameter vector = parameter("v", {4}, nn::ParameterKind::weight);
  EXPECT_THAT(message_of<UsageError>([&] { optim::Muon{one_matrix(vector)}; }),
              HasSubstr("v has the shape [4], expected a matrix: at least two axes"));
  EXPECT_THAT(message_of<UsageError>([&] { testing::make_optimizer("muon", {{.parameters = {p}}}); }),
              HasSubstr("muon: found no matrix, expected a filter or a weight other than the head"));
}

}  // namespace
}  // namespace convoy
