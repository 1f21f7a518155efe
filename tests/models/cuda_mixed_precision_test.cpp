// Mixed precision on a GPU, real or emulated: whole steps, and what becomes of one whose gradients overflow.
#include <cmath>
#include <limits>

#include "kernels/elementwise.h"
#include "kernels/runtime/work_graph.h"
#include "tests/models/mixed_precision.h"
#include "tests/support/gpu.h"

namespace convoy::testing {
namespace {

/// Without a GPU the tests are skipped. Trainings are compared bit for bit, so nothing may be timed.
Device gpu_or_cpu() { return Device::parse("auto", {}, {.deterministic = true}); }

class CudaMixedPrecision : public GpuTest, public ::testing::WithParamInterface<Scene> {
 protected:
  const Device gpu = gpu_or_cpu();
};

TEST_P(CudaMixedPrecision, OneStepIsNearTheCpusInSingle) { expect_a_step_near_single(GetParam(), gpu); }

TEST_P(CudaMixedPrecision, AnOverflowLeavesEverythingAsItWas) {
  const Scene& scene = GetParam();
  Training training(scene, scene.half, gpu, {.initial = 1024});
  training.compute_gradients();
  training.update();
  const Values before = training.state();

  training.compute_gradients();
  const NamedParameter last = training.model.parameters().back();
  const Tensor element = last.variable.grad().reshape({last.variable.grad().numel()}).slice(0, {1});
  on(gpu.stream(), [&](auto& s) { fill(s, std::numeric_limits<double>::infinity(), element.view()); });
  EXPECT_EQ(first_non_finite(training.model.parameters()), last.name);
  training.update();
  EXPECT_EQ(training.state(), before);
  const LossScaler::State scale = training.scaler.read();
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
                                           Scene{"other_layers", {8, 8, 3}, 4, "adam", 11, 0, DType::f16},
                                           Scene{"other_layers", {8, 8, 3}, 4, "adam", 11, 0, DType::bf16}),
                         [](const auto& parameter) { return ::testing::PrintToString(parameter.param); });

class CudaLossScaling : public GpuTest {
 protected:
  const Device gpu = gpu_or_cpu();
  const Scene scene{"other_layers", {8, 8, 3}, 4, "adamw", 11, 0, DType::f16};
};

// A loss times 2^24 overflows the 65504 of f16 at the logits already.
TEST_F(CudaLossScaling, FindsAScaleThatFits) {
  Training training(scene, DType::f16, gpu, {.initial = 0x1p24});
  const Values before = training.parameters();
  int skipped = 0;
  for (; skipped < 24 && training.optimizer->steps() == 0; ++skipped) {
    EXPECT_EQ(training.parameters(), before);
    training.compute_gradients();
    training.update();
  }
  --skipped;              // the last one was done
  EXPECT_GE(skipped, 6);  // a wrong label's 0.8 2^24 / 4 images is 51 times too large
  EXPECT_EQ(training.optimizer->steps(), 1);
  EXPECT_NE(training.parameters(), before);
  const LossScaler::State scale = training.scaler.read();
  EXPECT_EQ(scale.skipped, skipped);
  EXPECT_EQ(scale.scale, std::ldexp(1, 24 - skipped));
  EXPECT_EQ(scale.good_steps, 1);
  EXPECT_FALSE(scale.failed);
}

TEST_F(CudaLossScaling, FailsWhereTheLeastScaleOverflows) {
  Training training(scene, DType::f16, gpu, {.initial = 0x1p23, .options = {.least = 0x1p22}});
  for (const bool failed : {false, true}) {
    training.compute_gradients();
    EXPECT_EQ(first_non_finite(training.model.parameters()), "conv.weight");
    training.update();
    EXPECT_EQ(training.scaler.read().failed, failed);
  }
  EXPECT_EQ(training.scaler.read().scale, 0x1p22);
  EXPECT_EQ(training.optimizer->steps(), 0);
}

TEST_F(CudaLossScaling, IsNotForAModelThatHasMoved) {
  Training training(scene, DType::f32, gpu);
  training.compute_gradients();
  const NamedParameter first = training.model.parameters().front();
  first.variable.set_value(first.variable.value().to(Device::cpu({.threads = 1})));
  try {
    training.update();
    FAIL() << "updated";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("has moved from cuda:0 to cpu"), std::string::npos)
        << error.what();
  }
}

// What a training records: an update whose rate, count, clipping, scale and flag all come from memory.
TEST_F(CudaLossScaling, IsTheSameFromARecording) {
  if (!WorkGraph::supported(gpu)) GTEST_SKIP() << gpu.name() << " records nothing";
  const LossScaleSettings settings{.initial = 0x1p20, .options = {.interval = 2}};
  Training eager(scene, DType::f16, gpu, settings), recorded(scene, DType::f16, gpu, settings);
  const Tensor rate = Tensor::full({1}, 0, DType::f64, gpu);
  const auto update = [&] { recorded.optimizer->step(rate, {.clip_norm = 1.0, .scaler = &recorded.scaler}); };
  std::unique_ptr<WorkGraph> graph;
  for (int step = 0; step < 8; ++step) {
    const double lr = kRate / (1 + step);
    eager.compute_gradients();
    eager.optimizer->step(lr, {.clip_norm = 1.0, .scaler = &eager.scaler});
    on(gpu.stream(), [&](auto& s) { fill(s, lr, rate.view()); });
    recorded.compute_gradients();
    if (graph == nullptr) graph = std::make_unique<WorkGraph>(gpu, update);
    graph->replay();
    EXPECT_EQ(recorded.state(), eager.state()) << "step " << step;
    EXPECT_EQ(recorded.scaler.read().scale, eager.scaler.read().scale);
  }
  EXPECT_GT(eager.scaler.read().skipped, 0);
  EXPECT_GT(eager.optimizer->steps(), 2);
}

}  // namespace
}  // namespace convoy::testing
