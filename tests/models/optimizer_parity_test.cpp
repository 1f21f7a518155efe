// Comparison of five steps of every optimizer with PyTorch in f64 (tests/reference/ops.py, muon.py), with
// given gradients and a decreasing learning rate.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/optim/muon.h"
#include "convoy/engine/optim/optimizer.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

using MakeOptimizer =
    std::function<std::unique_ptr<optim::Optimizer>(const std::vector<nn::NamedParameter>&)>;

MakeOptimizer sgd(const optim::SgdSettings& settings) {
  return [settings](const auto& parameters) { return std::make_unique<optim::Sgd>(parameters, settings); };
}

MakeOptimizer adam(const optim::AdamSettings& settings) {
  return [settings](const auto& parameters) { return std::make_unique<optim::Adam>(parameters, settings); };
}

struct OptimizerCase {
  std::string name;
  MakeOptimizer make;
  double lr;
  std::optional<double> clip = std::nullopt;
};

class OptimizerParity : public ::testing::TestWithParam<DType> {};

TEST_P(OptimizerParity, FiveSteps) {
  const Reference reference("ops.safetensors");
  // A step has a handful of operations. Five steps have at most 30 roundings of the parameter.
  const double tolerance = GetParam() == DType::f64 ? 30 * 0x1p-53 : 30 * 0x1p-24;
  const optim::SgdSettings nesterov_decay{.momentum = 0.9, .nesterov = true, .weight_decay = 0.05};
  for (const OptimizerCase& c :
       {OptimizerCase{"sgd", sgd({}), 0.1}, OptimizerCase{"sgd/momentum", sgd({.momentum = 0.9}), 0.1},
        OptimizerCase{"sgd/nesterov_decay", sgd(nesterov_decay), 0.1},
        OptimizerCase{"sgd/clipped", sgd({.momentum = 0.9}), 0.1, 0.75},
        OptimizerCase{"adam", adam({}), 0.01},
        OptimizerCase{"adam/decay", adam({.weight_decay = 0.05}), 0.01},
        OptimizerCase{"adamw", adam({.weight_decay = 0.05, .decoupled = true}), 0.01},
        OptimizerCase{"adam/missing", adam({}), 0.01},
        OptimizerCase{"adamw/missing", adam({.weight_decay = 0.05, .decoupled = true}), 0.01},
        OptimizerCase{"rmsprop", adam({.beta1 = 0, .beta2 = 0.99, .rms_prop = true}), 0.01},
        OptimizerCase{"rmsprop/momentum",
                      adam({.beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.05, .rms_prop = true}), 0.01},
        OptimizerCase{"rmsprop/missing", adam({.beta2 = 0.99, .rms_prop = true}), 0.01}}) {
    const bool misses = c.name.ends_with("/missing");  // b has no gradient in the first and the third step
    const std::vector<nn::NamedParameter> parameters{
        {"a", Variable(formula_values(c.name + "/a", {3, 4}, GetParam()), true), nn::ParameterKind::weight},
        {"b", Variable(formula_values(c.name + "/b", {5}, GetParam()), true), nn::ParameterKind::bias}};
    const std::unique_ptr<optim::Optimizer> optimizer = c.make(parameters);
    for (int step = 0; step < 5; ++step) {
      for (const nn::NamedParameter& parameter : parameters) {
        if (misses && parameter.name == "b" && (step == 0 || step == 2)) continue;
        const std::string gradient = c.name + "/" + parameter.name + "/grad" + std::to_string(step);
        const Shape& shape = parameter.variable.shape();
        backward(sum(parameter.variable * Variable(formula_values(gradient, shape, GetParam()))));
      }
      optimizer->step(c.lr * (1 - step / 10.0), {.clip_norm = c.clip});
      for (const nn::NamedParameter& parameter : parameters) {
        const Tensor trajectory = reference.at(c.name + "/" + parameter.name);
        const Tensor expected = trajectory.rows(step, step + 1).reshape(parameter.variable.shape());
        EXPECT_TRUE(near(parameter.variable.value(), expected, tolerance))
            << c.name << ": " << parameter.name << " after step " << step + 1;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, OptimizerParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

constexpr int kSteps = 5;

/// Returns the bound of the relative error after five steps. A direction has a relative error of about ten
/// roundings: of its norm, and of GEMMs with up to 18 terms. Each iteration amplifies it by at most 3.4445.
/// The parameters are about as large as a direction times the rate times the scale.
double tolerance(DType dtype, int ns_steps, double rate) {
  const double unit = dtype == DType::f64 ? 0x1p-53 : 0x1p-24;
  return kSteps * unit * (10 + 10 * rate * std::pow(3.4445, ns_steps));
}

class MuonParity : public ::testing::TestWithParam<DType> {
 protected:
  /// Makes five steps and compares the parameters after each one.
  void expect_trajectory(const std::string& name, const std::vector<nn::NamedParameter>& parameters,
                         optim::Optimizer& optimizer, double rate, double bound) const {
    const Reference reference("muon.safetensors");
    for (int step = 0; step < kSteps; ++step) {
      const std::string number = std::to_string(step);
      for (const nn::NamedParameter& p : parameters) {
        const Tensor gradient =
            formula_values(name + "/" + p.name + "/grad" + number, p.variable.shape(), GetParam());
        backward(sum(p.variable * Variable(gradient)));
      }
      optimizer.step(rate * (1 - step / 10.0));
      for (const nn::NamedParameter& p : parameters)
        EXPECT_TRUE(near(p.variable.value(), reference.at(name + "/" + p.name + "/step" + number), bound))
            << name << ": " << p.name << " after step " << step + 1;
    }
  }

  static nn::NamedParameter parameter(const std::string& name, const std::string& parameter,
                                      const Shape& shape, nn::ParameterKind kind) {
    return {parameter, Variable(formula_values(name + "/" + parameter, shape, GetParam()), true), kind};
  }
};

struct MuonCase {
  std::string name;
  optim::MuonSettings settings;
  double weight_decay;
};

TEST_P(MuonParity, MatchesTheOptimizerOfPyTorch) {
  constexpr double kRate = 0.02;
  for (const MuonCase& c : {MuonCase{"muon", {}, 0.1},
                            MuonCase{"muon/plain", {.momentum = 0.9, .nesterov = false, .ns_steps = 3}, 0},
                            MuonCase{"muon/adam_rms", {.scale = optim::MuonScale::adam_rms}, 0.1}}) {
    const std::vector<nn::NamedParameter> parameters{
        parameter(c.name, "a", {4, 7}, nn::ParameterKind::weight),
        parameter(c.name, "b", {4, 7}, nn::ParameterKind::weight),
        parameter(c.name, "c", {9, 4}, nn::ParameterKind::weight),
        parameter(c.name, "d", {5, 5}, nn::ParameterKind::weight)};
    optim::Muon optimizer(
        {.matrices = {{.parameters = parameters, .weight_decay = c.weight_decay}}, .others = {}}, c.settings);
    expect_trajectory(c.name, parameters, optimizer, kRate,
                      tolerance(GetParam(), c.settings.ns_steps, kRate));
  }
}

TEST_P(MuonParity, MatchesTheSpeedRecipe) {
  constexpr double kRate = 0.24, kSgdRate = 0.05;
  const std::string name = "muon/recipe";
  const std::vector<nn::NamedParameter> parameters{
      parameter(name, "filter", {4, 3, 2, 3}, nn::ParameterKind::filter),
      parameter(name, "other", {4, 3, 2, 3}, nn::ParameterKind::filter),
      parameter(name, "bias", {5}, nn::ParameterKind::bias)};
  optim::Muon optimizer(
      {.matrices = {{.parameters = {parameters[0], parameters[1]}}},
       .others = {{.parameters = {parameters[2]}, .lr_scale = kSgdRate / kRate, .weight_decay = 0.1}}},
      {.momentum = 0.6,
       .ns_steps = 3,
       .scale = optim::MuonScale::none,
       .normalize = true,
       .sgd_momentum = 0.85});
  expect_trajectory(name, parameters, optimizer, kRate, tolerance(GetParam(), 3, kRate));
}

INSTANTIATE_TEST_SUITE_P(, MuonParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace convoy::testing
