// Training steps in mixed precision on a real or emulated GPU, also with gradients that overflow.
#include <cmath>
#include <limits>

#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "tests/models/mixed_precision.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/gpu.h"

namespace convoy::testing {
namespace {

/// Returns the GPU, or the CPU if there is none, where the tests are skipped. Results are compared bitwise,
/// so autotuning is off.
DeviceContext gpu_or_cpu() { return DeviceContext::create(Device::best(), {}, {.deterministic = true}); }

class CudaMixedPrecision : public GpuTest, public ::testing::WithParamInterface<Scene> {
 protected:
  const DeviceContext gpu = gpu_or_cpu();
};

TEST_P(CudaMixedPrecision, OneStepIsNearF32OnTheCpu) { expect_step_near_f32(GetParam(), gpu); }

TEST_P(CudaMixedPrecision, OverflowLeavesTheStateUnchanged) {
  const Scene& scene = GetParam();
  Training training(scene, scene.half, gpu, {.initial = 1024});
  training.compute_gradients();
  training.optimizer_step();
  const Values before = training.state();

  training.compute_gradients();
  const nn::NamedParameter last = training.model.parameters().back();
  const Tensor element = last.variable.grad().reshape({last.variable.grad().numel()}).slice(0, {1});
  on(gpu.stream(),
     [&](auto& s) { kernels::fill(s, std::numeric_limits<double>::infinity(), element.view()); });
  EXPECT_EQ(optim::first_non_finite(training.model.parameters()), last.name);
  training.optimizer_step();
  EXPECT_EQ(training.state(), before);
  const optim::LossScaler::State scale = training.scaler.read();
  EXPECT_EQ(scale.scale, 512);
  EXPECT_EQ(scale.skipped, 1);
  EXPECT_EQ(scale.good_steps, 0);
  EXPECT_FALSE(scale.failed);
}

INSTANTIATE_TEST_SUITE_P(Nets, CudaMixedPrecision,
                         ::testing::Values(Scene{"lenet", {28, 28, 1}, 4, "adamw", 11, 6, DType::f16},
                                           Scene{"lenet", {28, 28, 1}, 4, "adamw", 11, 6, DType::bf16},
                                           Scene{"resnet20", {8, 8, 3}, 3, "sgd", 41, 19, DType::f16},
                                           Scene{"resnet20", {8, 8, 3}, 3, "sgd", 41, 19, DType::bf16},
                                           Scene{"speedrun-small", {25, 25, 3}, 4, "sgd", 22, 8, DType::f16},
                                           Scene{"speedrun-small", {25, 25, 3}, 4, "sgd", 22, 8, DType::bf16},
                                           Scene{"other_layers", {8, 8, 3}, 4, "adam", 11, 0, DType::f16},
                                           Scene{"other_layers", {8, 8, 3}, 4, "adam", 11, 0, DType::bf16}),
                         [](const auto& parameter) { return ::testing::PrintToString(parameter.param); });

class CudaLossScaling : public GpuTest {
 protected:
  const DeviceContext gpu = gpu_or_cpu();
  const Scene scene{"other_layers", {8, 8, 3}, 4, "adamw", 11, 0, DType::f16};
};

// A loss that is scaled by 2^24 exceeds 65504, the maximum of f16, in the gradient of the logits.
TEST_F(CudaLossScaling, LowersTheScaleUntilNothingOverflows) {
  Training training(scene, DType::f16, gpu, {.initial = 0x1p24});
  const Values before = training.parameters();
  int skipped = 0;
  for (; skipped < 24 && training.optimizer->steps() == 0; ++skipped) {
    EXPECT_EQ(training.parameters(), before);
    training.compute_gradients();
    training.optimizer_step();
  }
  --skipped;              // the last step was not skipped
  EXPECT_GE(skipped, 6);  // 0.8 2^24 / 4, for a wrong label in 4 images, is 51 times the maximum of f16
  EXPECT_EQ(training.optimizer->steps(), 1);
  EXPECT_NE(training.parameters(), before);
  const optim::LossScaler::State scale = training.scaler.read();
  EXPECT_EQ(scale.skipped, skipped);
  EXPECT_EQ(scale.scale, std::ldexp(1, 24 - skipped));
  EXPECT_EQ(scale.good_steps, 1);
  EXPECT_FALSE(scale.failed);
}

TEST_F(CudaLossScaling, FailsIfTheMinimumScaleOverflows) {
  Training training(scene, DType::f16, gpu, {.initial = 0x1p23, .options = {.minimum = 0x1p22}});
  for (const bool failed : {false, true}) {
    training.compute_gradients();
    EXPECT_EQ(optim::first_non_finite(training.model.parameters()), "conv.weight");
    training.optimizer_step();
    EXPECT_EQ(training.scaler.read().failed, failed);
  }
  EXPECT_EQ(training.scaler.read().scale, 0x1p22);
  EXPECT_EQ(training.optimizer->steps(), 0);
}

TEST_F(CudaLossScaling, ThrowsIfTheModelHasMoved) {
  Training training(scene, DType::f32, gpu);
  training.compute_gradients();
  const nn::NamedParameter first = training.model.parameters().front();
  first.variable.set_value(first.variable.value().to(DeviceContext::create_cpu({.threads = 1})));
  EXPECT_THAT(message_of<UsageError>([&] { training.optimizer_step(); }),
              ::testing::HasSubstr("has moved from cuda:0 to cpu"));
}

// An optimizer step as captured by training: the learning rate, step count, clipping factor, loss scale and
// skip flag are read from device memory.
TEST_F(CudaLossScaling, MatchesEagerExecutionInACudaGraph) {
  if (!CudaGraph::supported(gpu)) GTEST_SKIP() << "needs a GPU that supports CUDA graphs";
  const optim::LossScaleSettings settings{.initial = 0x1p20, .options = {.interval = 2}};
  Training eager(scene, DType::f16, gpu, settings), captured(scene, DType::f16, gpu, settings);
  // The graph has the step alone, so the gradients need fixed addresses.
  std::vector<Tensor> storage;
  for (const Training* training : {&eager, &captured})
    for (const nn::NamedParameter& parameter : training->model.parameters())
      parameter.variable.set_grad_storage(
          storage.emplace_back(Tensor::zeros(parameter.variable.shape(), DType::f32, gpu)));
  const Tensor rate = Tensor::full({1}, 0, DType::f64, gpu);
  const auto step_work = [&] {
    captured.optimizer->step(rate, {.clip_norm = 1.0, .scaler = &captured.scaler});
  };
  std::unique_ptr<CudaGraph> graph;
  for (int step = 0; step < 8; ++step) {
    const double lr = kLearningRate / (1 + step);
    eager.compute_gradients();
    eager.optimizer->step(lr, {.clip_norm = 1.0, .scaler = &eager.scaler});
    on(gpu.stream(), [&](auto& s) { kernels::fill(s, lr, rate.view()); });
    captured.compute_gradients();
    if (graph == nullptr) graph = std::make_unique<CudaGraph>(gpu, step_work);
    graph->replay();
    EXPECT_EQ(captured.state(), eager.state()) << "step " << step;
    EXPECT_EQ(captured.scaler.read().scale, eager.scaler.read().scale);
  }
  EXPECT_GT(eager.scaler.read().skipped, 0);
  EXPECT_GT(eager.optimizer->steps(), 2);
}

}  // namespace
}  // namespace convoy::testing
