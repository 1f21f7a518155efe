// Comparison of training steps on a real or emulated GPU with the same steps on the CPU: forward, backward,
// clipping and the optimizer step, from the same parameters on the same batches.
#include <cmath>
#include <ostream>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/models/models.h"
#include "tests/testing/support/gpu.h"
#include "tests/testing/support/make_optimizer.h"

namespace convoy::testing {
namespace {

struct Scene {
  const char* model;
  Shape input;  // smaller than CIFAR-10 for the network with batch norm, because an emulated GPU is slow
  std::int64_t batch;
  const char* optimizer;
};

/// Prints the name of the test parameter.
void PrintTo(const Scene& scene, std::ostream* out) { *out << scene.model; }

struct Steps {
  std::vector<double> losses;
  std::vector<double> state;  // parameters and running statistics, one after the other
};

Steps train(const Scene& scene, DType dtype, const DeviceContext& device, int steps) {
  const models::Model model =
      models::make(scene.model, {.input = scene.input, .classes = 10, .seed = 3, .device = device}).to(dtype);
  const auto optimizer = make_optimizer(scene.optimizer, optim::decay_groups(model.parameters(), 1e-3));
  const Random random{.seed = 5, .purpose = RandomPurpose::test};
  const Shape images{scene.batch, scene.input[0], scene.input[1], scene.input[2]};
  Steps result;
  for (int step = 0; step < steps; ++step) {
    std::vector<double> pixels(static_cast<std::size_t>(images.numel()));
    for (std::size_t i = 0; i < pixels.size(); ++i)
      pixels[i] =
          2.0 * static_cast<double>(to_uniform(random.words(i, static_cast<std::uint32_t>(step))[0])) - 1;
    std::vector<std::int32_t> labels(static_cast<std::size_t>(scene.batch));
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>((3 * i + 1) % 10);

    const Variable logits = model(Tensor::from(pixels, images, device).to(dtype), {.training = true});
    const Variable loss = cross_entropy_sum(logits, Tensor::from(labels, {scene.batch}, device), 0.1) /
                          static_cast<double>(scene.batch);
    backward(loss);
    optimizer->step(0.01, {.clip_norm = 1.0});
    result.losses.push_back(loss.value().item());
  }
  const auto append = [&](const Tensor& tensor) {
    const std::vector<double> values = tensor.to(DType::f64).to_vector<double>();
    result.state.insert(result.state.end(), values.begin(), values.end());
  };
  for (const nn::NamedParameter& parameter : model.parameters()) append(parameter.variable.value());
  for (const nn::NamedBuffer& buffer : model.root().buffers()) append(buffer.tensor);
  return result;
}

double relative_distance(const std::vector<double>& found, const std::vector<double>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

class CudaStep : public GpuTest, public ::testing::WithParamInterface<Scene> {
 protected:
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 1});
};

// In f64 only rounding differs, by 1e-16 of each term. Three training steps amplify it by at most 1,000.
TEST_P(CudaStep, ThreeStepsInF64MatchTheCpu) {
  const Steps expected = train(GetParam(), DType::f64, cpu, 3);
  const Steps found = train(GetParam(), DType::f64, DeviceContext::create_cuda(0), 3);
  EXPECT_LE(relative_distance(found.losses, expected.losses), 1e-12);
  EXPECT_LE(relative_distance(found.state, expected.state), 1e-12);
}

// Only one step: with batch norm, later steps amplify f32 rounding errors beyond any useful bound.
TEST_P(CudaStep, OneStepInF32MatchesTheCpu) {
  const Steps expected = train(GetParam(), DType::f32, cpu, 1);
  const Steps found = train(GetParam(), DType::f32, DeviceContext::create_cuda(0), 1);
  EXPECT_LE(relative_distance(found.losses, expected.losses), 1e-5);
  EXPECT_LE(relative_distance(found.state, expected.state), 1e-5);
}

TEST_P(CudaStep, IsBitwiseReproducibleInAnyThreadOrder) {
  std::vector<Steps> runs;
  const CudaOptions options{.deterministic = true};  // autotuning could choose other algorithms
  for_each_order(
      [&] { runs.push_back(train(GetParam(), DType::f32, DeviceContext::create_cuda(0, options), 2)); });
  for (const Steps& run : runs) {
    EXPECT_EQ(run.losses, runs[0].losses);
    EXPECT_EQ(run.state, runs[0].state);
  }
}

INSTANTIATE_TEST_SUITE_P(Nets, CudaStep,
                         ::testing::Values(Scene{"lenet", {28, 28, 1}, 4, "adamw"},
                                           Scene{"resnet20", {8, 8, 3}, 3, "sgd"},
                                           Scene{"speedrun-small", {25, 25, 3}, 2, "sgd"}),
                         [](const auto& parameter) {
                           std::string name = parameter.param.model;
                           std::erase(name, '-');
                           return name;
                         });

// The image size of real training runs.
TEST_F(GpuTest, OneStepOfResNet20MatchesTheCpu) {
  const Scene scene{"resnet20", {32, 32, 3}, 2, "sgd"};
  const Steps expected = train(scene, DType::f32, DeviceContext::create_cpu({.threads = 1}), 1);
  const Steps found = train(scene, DType::f32, DeviceContext::create_cuda(0), 1);
  EXPECT_LE(relative_distance(found.losses, expected.losses), 1e-5);
  EXPECT_LE(relative_distance(found.state, expected.state), 1e-5);
}

// The parameters stay on the GPU while the network runs on the meta device.
TEST_F(GpuTest, SummaryIsThatOfTheCpu) {
  const models::Options options{.device = Device::cpu()};
  models::Options on_gpu = options;
  on_gpu.device = DeviceContext::create_cuda(0);
  EXPECT_EQ(models::resnet20(on_gpu).summary(), models::resnet20(options).summary());
}

}  // namespace
}  // namespace convoy::testing
