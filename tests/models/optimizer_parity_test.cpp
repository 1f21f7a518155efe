// Comparison of five steps of every optimizer with PyTorch in f64 (tests/reference/ops.py), with given
// gradients and a decreasing learning rate.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
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
        OptimizerCase{"adamw", adam({.weight_decay = 0.05, .decoupled = true}), 0.01}}) {
    const std::vector<nn::NamedParameter> parameters{
        {"a", Variable(formula_values(c.name + "/a", {3, 4}, GetParam()), true), nn::ParameterKind::weight},
        {"b", Variable(formula_values(c.name + "/b", {5}, GetParam()), true), nn::ParameterKind::bias}};
    const std::unique_ptr<optim::Optimizer> optimizer = c.make(parameters);
    for (int step = 0; step < 5; ++step) {
      for (const nn::NamedParameter& parameter : parameters) {
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

}  // namespace
}  // namespace convoy::testing
