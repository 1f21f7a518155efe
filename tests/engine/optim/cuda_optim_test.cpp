// Comparison of steps of Muon on a real or emulated GPU with the same steps on the CPU, and of captured steps
// with eager ones.
#include <gtest/gtest.h>
#include <cmath>
#include <limits>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/optim/muon.h"
#include "convoy/engine/optim/weight_average.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "tests/engine/optim/random_values.h"
#include "tests/testing/support/gpu.h"
#include "tests/testing/support/tiny_training.h"

namespace convoy {
namespace {

using testing::random_values;
using Values = std::vector<double>;

/// A few parameters whose gradients are given: two filters of equal shape, a tall weight, and a bias. The
/// singular values of the gradients' matrices are far from 0.
class Parameters {
 public:
  Parameters(const DeviceContext& device, DType dtype, const optim::MuonSettings& settings = {}) {
    for (const auto& [name, shape, kind] : {std::tuple{"one", Shape{8, 3, 3, 8}, nn::ParameterKind::filter},
                                            std::tuple{"two", Shape{8, 3, 3, 8}, nn::ParameterKind::filter},
                                            std::tuple{"tall", Shape{40, 6}, nn::ParameterKind::weight},
                                            std::tuple{"bias", Shape{7}, nn::ParameterKind::bias}}) {
      const Tensor value = Tensor::from(random_values(shape.numel(), number_++), shape, device).to(dtype);
      all_.push_back({name, Variable(value.clone(), true), kind});
      gradients_.push_back(Tensor::empty_like(value));
    }
    optimizer_ = std::make_unique<optim::Muon>(
        optim::muon_groups({{.parameters = all_, .weight_decay = settings.normalize ? 0 : 0.1}},
                           {.head = true, .sgd_lr_scale = 2}),
        settings);
  }

  /// Sets the gradients of the step `number`.
  void set_gradients(std::uint32_t number) const {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const Tensor& to = gradients_[i];
      const auto seed = static_cast<std::uint32_t>(100 * number + i);
      to.copy_from(Tensor::from(random_values(to.numel(), seed), to.shape(), to.context()).to(to.dtype()));
    }
  }
  /// Enqueues a backward whose gradients are those that are set, and a step.
  void step(const Tensor& lr) const {
    for (std::size_t i = 0; i < all_.size(); ++i) backward(sum(all_[i].variable * Variable(gradients_[i])));
    optimizer_->step(lr);
  }

  /// Returns the values of all parameters and their momentum, one after the other.
  std::vector<Values> values() const {
    std::vector<Values> values;
    for (const nn::NamedParameter& p : all_)
      values.push_back(p.variable.value().to(DType::f64).to_vector<double>());
    for (const optim::NamedState& state : optimizer_->state())
      values.push_back(state.tensor.to(DType::f64).to_vector<double>());
    return values;
  }
  const optim::Muon& optimizer() const { return *optimizer_; }

 private:
  std::uint32_t number_ = 1;
  std::vector<nn::NamedParameter> all_;
  std::vector<Tensor> gradients_;
  std::unique_ptr<optim::Muon> optimizer_;
};

Tensor rate_on(const DeviceContext& device, double lr) { return Tensor::full({1}, lr, DType::f64, device); }

std::vector<Values> stepped(const DeviceContext& device, DType dtype, const optim::MuonSettings& settings,
                            int steps) {
  const Parameters parameters(device, dtype, settings);
  for (int step = 0; step < steps; ++step) {
    parameters.set_gradients(static_cast<std::uint32_t>(step));
    parameters.step(rate_on(device, 0.1 / (1 + step)));
  }
  return parameters.values();
}

/// Returns |found - expected| of parameter i.
double distance(const std::vector<Values>& found, const std::vector<Values>& expected, std::size_t i) {
  double sum = 0;
  for (std::size_t e = 0; e < expected[i].size(); ++e)
    sum += (found[i][e] - expected[i][e]) * (found[i][e] - expected[i][e]);
  return std::sqrt(sum);
}

class CudaMuon : public testing::GpuTest {
 protected:
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 1});
};

const optim::MuonSettings kRecipe{
    .momentum = 0.6, .ns_steps = 3, .scale = optim::MuonScale::none, .normalize = true};

// A direction has a rounding error of about ten units, which each iteration amplifies by at most 3.4445.
TEST_F(CudaMuon, ThreeStepsInF64MatchTheCpu) {
  for (const optim::MuonSettings& settings : {optim::MuonSettings{}, kRecipe}) {
    const std::vector<Values> expected = stepped(cpu, DType::f64, settings, 3);
    const std::vector<Values> found = stepped(DeviceContext::create_cuda(0), DType::f64, settings, 3);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_LE(distance(found, expected, i), 3 * 10 * 0x1p-53 * std::pow(3.4445, settings.ns_steps) *
                                                  std::sqrt(static_cast<double>(expected[i].size())))
          << i;
  }
}

// The GPU rounds to bf16, a relative error of at most 2^-8, and about 2^-9 in the root mean square: the direction once, and in each iteration A, A^2,
// b A + c A^2, the last product and X. The polynomial multiplies the errors of A by up to |b| + 2 |c|, about 9.
// Errors have random signs, so that in each iteration they add up to about 2^-9 sqrt(9^2 + 4), and those of all
// iterations add up in squares. Later iterations do not amplify them, because the singular values are not near 0.
TEST_F(CudaMuon, OneStepInF32MatchesTheCpu) {
  constexpr double kLr = 0.1;
  for (const optim::MuonSettings& settings : {optim::MuonSettings{}, kRecipe}) {
    const std::vector<Values> expected = stepped(cpu, DType::f32, settings, 1);
    const std::vector<Values> found = stepped(DeviceContext::create_cuda(0), DType::f32, settings, 1);
    const double relative = 0x1p-9 * std::sqrt(85.0 * settings.ns_steps);
    for (std::size_t i = 0; i < 3; ++i) {  // the matrices
      const double shortest = i < 2 ? 8 : 6;
      const double scale = settings.normalize || i < 2 ? 1 : std::sqrt(40.0 / 6);
      EXPECT_LE(distance(found, expected, i), kLr * scale * std::sqrt(shortest) * relative) << i;
      EXPECT_GT(distance(found, expected, i), 0) << "bf16 was not used";
    }
    for (std::size_t i = 3; i < expected.size(); ++i)  // the bias and the momentum
      EXPECT_LE(distance(found, expected, i),
                4 * 0x1p-24 * std::sqrt(static_cast<double>(expected[i].size())))
          << i;
  }
}

TEST_F(CudaMuon, CapturedStepsMatchEagerSteps) {
  for_each_order([&] {
    const DeviceContext gpu = DeviceContext::create_cuda(0, {.deterministic = true});
    const Parameters eager(gpu, DType::f32), captured(gpu, DType::f32);
    const Tensor lr = rate_on(gpu, 0.1);
    for (const Parameters* each : {&eager, &captured}) {  // a first step outside of the capture
      each->set_gradients(0);
      each->step(lr);
    }
    CudaGraph graph(gpu, [&] { captured.step(lr); });
    for (std::uint32_t step = 1; step < 4; ++step) {
      lr.copy_from(rate_on(gpu, 0.1 / step));
      eager.set_gradients(step);
      captured.set_gradients(step);
      eager.step(lr);
      graph.replay();
      EXPECT_EQ(captured.values(), eager.values()) << "step " << step;
    }
    EXPECT_EQ(captured.optimizer().steps(), 4);
  });
}

class CudaAdam : public testing::GpuTest {
 protected:
  /// Two parameters and an optimizer on a device. The first one has a gradient in each step.
  struct Training {
    std::vector<nn::NamedParameter> parameters;
    std::unique_ptr<optim::Optimizer> optimizer;
    Tensor lr;

    Training(const DeviceContext& device, const std::string& name)
        : lr(Tensor::full({1}, 0.01, DType::f64, device)) {
      for (const auto& [parameter, count] : {std::pair("a", 37), std::pair("b", 9)})
        parameters.push_back(
            {parameter, Variable(Tensor::from(random_values(count, 5), {count}, device), true)});
      optimizer = testing::make_optimizer(name, {{.parameters = parameters, .weight_decay = 0.05}});
    }
    void step(bool has_second) const {
      for (std::size_t i = 0; i < (has_second ? 2 : 1); ++i) {
        const Variable& p = parameters[i].variable;
        backward(sum(p * p * p));
      }
      optimizer->step(lr);
    }
    std::vector<Values> values() const {
      std::vector<Values> all;
      for (const nn::NamedParameter& p : parameters) all.push_back(p.variable.value().to_vector<double>());
      return all;
    }
  };
};

TEST_F(CudaAdam, CountsTheStepsOfEachParameterAsTheCpu) {
  for (const char* name : {"adam", "adamw"})
    for_each_order([&] {
      const Training expected(DeviceContext::create_cpu({.threads = 1}), name),
          found(DeviceContext::create_cuda(0), name);
      for (const bool has_second : {false, true, false, true, true}) {
        expected.step(has_second);
        found.step(has_second);
        for (std::size_t i = 0; i < 2; ++i)
          for (std::size_t e = 0; e < expected.values()[i].size(); ++e)
            EXPECT_NEAR(found.values()[i][e], expected.values()[i][e], 40 * 0x1p-53) << name << " " << i;
      }
      EXPECT_EQ(found.optimizer->steps(), 5);
      EXPECT_EQ(found.optimizer->own_steps(), (optim::StepsByName{{"b", 3}}));
    });
}

TEST_F(CudaAdam, CapturedStepsCountTheStepsOfEachParameter) {
  for_each_order([&] {
    const DeviceContext gpu = DeviceContext::create_cuda(0, {.deterministic = true});
    const Training eager(gpu, "adamw"), captured(gpu, "adamw");
    for (const Training* each : {&eager, &captured}) each->step(true);
    EXPECT_THROW(CudaGraph(gpu, [&] { captured.step(false); }), CaptureError)
        << "a graph would set the number of steps of the missing parameter in each replay";
    for (const Training* each : {&eager, &captured}) each->step(false);
    CudaGraph without(gpu, [&] { captured.step(false); }), with(gpu, [&] { captured.step(true); });
    for (const bool has_second : {false, true, true, false, false, true}) {
      eager.step(has_second);
      (has_second ? with : without).replay();
      EXPECT_EQ(captured.values(), eager.values());
    }
    EXPECT_EQ(captured.optimizer->steps(), 8);
    EXPECT_EQ(captured.optimizer->own_steps(), (optim::StepsByName{{"b", 4}}));
  });
}

TEST_F(CudaMuon, IsBitwiseReproducibleInAnyThreadOrder) {
  std::vector<std::vector<Values>> runs;
  for_each_order([&] {
    runs.push_back(stepped(DeviceContext::create_cuda(0, {.deterministic = true}), DType::f32, kRecipe, 2));
  });
  for (const std::vector<Values>& run : runs) EXPECT_EQ(run, runs[0]);
}

// Compares WeightAverage on a GPU with the CPU.

using testing::TinyTraining;

class CudaWeightAverage : public testing::GpuTest {};

/// Returns all parameters and buffers after updates of the average of a model on `device`, in f32.
std::vector<float> averaged(const DeviceContext& device) {
  const TinyTraining training;
  training.net->to(device);
  training.net->keep_low_precision_copies(DType::bf16);
  optim::WeightAverage average(*training.net);
  for (const std::uint64_t seed : {5, 6, 7}) {
    training.net->initialize(seed);
    average.update(0.3);
  }
  average.write_back();
  training.net->initialize(8);
  average.swap();
  std::vector<float> all;
  for (const optim::NamedState& state : average.state("average")) {
    const std::vector<float> values = state.tensor.to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  for (const nn::NamedParameter& parameter : training.net->parameters()) {
    const Variable& variable = parameter.variable;
    const std::vector<float> values = variable.value().to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
    if (!variable.low_precision_copy().defined()) continue;
    EXPECT_EQ(variable.low_precision_copy().to(DType::f32).to_vector<float>(),
              variable.value().to(DType::bf16).to(DType::f32).to_vector<float>())
        << parameter.name;
  }
  return all;
}

TEST_F(CudaWeightAverage, EqualsTheCpu) {
  const std::vector<float> expected = averaged(Device::cpu());
  for_each_order([&] {
    const std::vector<float> found = averaged(DeviceContext::create_cuda(0));
    ASSERT_EQ(found.size(), expected.size());
    // One device may contract a multiplication and an addition to FMA: two roundings less in each of three updates.
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], expected[i],
                  6 * std::numeric_limits<float>::epsilon() * (std::abs(expected[i]) + 1))
          << i;
  });
}

}  // namespace

}  // namespace convoy
