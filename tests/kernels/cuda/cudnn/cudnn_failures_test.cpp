// Tests of convolutions whose cuDNN plans cannot be finalized or cannot run.
#include <gmock/gmock.h>

#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "convoy/kernels/runtime/library_versions.h"
#include "emulator/runtime/emulator.h"
#include "tests/kernels/cuda/cudnn/cudnn_fixture.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using namespace testing;    // NOLINT: the fixture
using namespace ::testing;  // NOLINT: matchers
namespace engine = emulator::cudnn_engine;

class CudnnFailures : public CudnnConv2d {};

/// A kernel that fails. Emulated GPUs need no qualifier.
void trap_kernel() { __trap(); }

/// Makes a kernel fail, after which every call of the GPU fails.
void break_gpu(CudaStream& stream) { kernels::launch(stream, 1, 1, 0, trap_kernel); }
void break_gpu(CpuStream&) {}

/// Returns the result of the reference kernels.
template <class T>
Array<T> reference_of(const Convolution<T>& a, bool with_bias = false, bool relu = false) {
  const DeviceArray<T> y(a.gpu, a.shape.y());
  Conv2dOptions options = a.shape.options();
  options.relu = relu;
  on(a.gpu.stream(), [&](auto& stream) {
    kernels::conv2d_forward_reference(stream, a.x.view(), a.filter.view(),
                                      with_bias ? ConstView(a.bias.view()) : ConstView(), y.view(), options);
  });
  return y.values();
}

// Without autotuning the first plan is used, as in the first step of a training.
TEST_F(CudnnFailures, UsesSecondPlanIfFirstCannotRun) {
  const auto failing = with([](auto& cudnn) { cudnn.failing = failures({engine::kNondeterministic}); });
  Convolution<float> a;
  a.gpu.set_autotune(false);
  a.forward();
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kKnobs, 1)));
  EXPECT_THAT(
      a.gpu.take_warnings(),
      ElementsAre("engine 3 workspace 0 of " + cudnn_version_text() + " cannot run " + std::string(kForward) +
                  " on cuda:0: CUDNN_STATUS_NOT_SUPPORTED (3000): engine 3 failed; " + std::string(kKnobs) +
                  " replaces it"));
  EXPECT_EQ(a.gpu.algorithm_cache().size(), 0u);
  a.forward();
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kKnobs, 1)));
  EXPECT_THAT(a.gpu.take_warnings(), IsEmpty());
}

TEST_F(CudnnFailures, UsesLaterPlanIfFirstAndSecondCannotRun) {
  for (const cudnnStatus_t status :
       {CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING, CUDNN_STATUS_INTERNAL_ERROR,
        CUDNN_STATUS_EXECUTION_FAILED, CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER,
        CUDNN_STATUS_EXECUTION_FAILED_CUDART}) {
    const auto failing = with([&](auto& cudnn) {
      cudnn.failing = failures({engine::kNondeterministic, engine::kKnobs}, status);
      cudnn.greedy_workspace = 1 << 20;
    });
    Convolution<float> a;
    a.gpu.set_autotune(false);
    a.forward();
    EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kGreedy, 1)));
    EXPECT_THAT(a.gpu.take_warnings(), ElementsAre(HasSubstr("; engine 5 workspace 1048576 replaces it")));
  }
}

TEST_F(CudnnFailures, ReportsInvalidArguments) {
  const auto failing = with(
      [](auto& cudnn) { cudnn.failing = failures({engine::kNondeterministic}, CUDNN_STATUS_BAD_PARAM); });
  Convolution<float> a;
  a.gpu.set_autotune(false);
  EXPECT_THAT(
      message_of<DeviceError>([&] { a.forward(); }),
      AllOf(HasSubstr("cudnnBackendExecute"), HasSubstr("CUDNN_STATUS_BAD_PARAM"), HasSubstr(", plan.cpp:")));
}

TEST_F(CudnnFailures, UsesPlainLoopsIfNoPlanRuns) {
  const auto failing = with([](auto& cudnn) { cudnn.failing = failures(kEveryEngine); });
  for (const bool autotune : {false, true}) {
    Convolution<float> a;
    const auto small = with([](auto& cudnn) { cudnn.greedy_workspace = 1 << 20; });
    a.gpu.set_autotune(autotune);
    a.forward(true, true);
    expect_same_bits(a.y.values(), reference_of(a, true, true));
    a.forward();
    a.forward();
    expect_same_bits(a.y.values(), reference_of(a));
    EXPECT_THAT(runs_by_engine(), IsEmpty());
    EXPECT_THAT(a.gpu.take_warnings(), ElementsAre(HasSubstr("; plain loops compute it, which are slow")));
    EXPECT_EQ(a.gpu.algorithm_cache().size(), 0u);
  }
}

TEST_F(CudnnFailures, UsesPlainLoopsForGradientsIfNoPlanRuns) {
  const auto failing = with([](auto& cudnn) {
    cudnn.failing = failures(kEveryEngine);
    cudnn.greedy_workspace = 1 << 20;
  });
  for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
    Convolution<float> a;
    const DeviceArray<float> dx(a.gpu, Array<float>::random(kBody.x(), 4)),
        expected_dx(a.gpu, Array<float>::random(kBody.x(), 4)),
        dfilter(a.gpu, Array<float>::random(kBody.filter(), 5)),
        expected_dfilter(a.gpu, Array<float>::random(kBody.filter(), 5)),
        dy(a.gpu, Array<float>::random(kBody.y(), 6));
    on(a.gpu.stream(), [&](auto& stream) {
      const Conv2dOptions options = kBody.options();
      kernels::conv2d_backward_data(stream, dy.view(), a.filter.view(), dx.grad(mode), options);
      kernels::conv2d_backward_filter(stream, dy.view(), a.x.view(), dfilter.grad(mode), options);
      kernels::conv2d_backward_data_reference(stream, dy.view(), a.filter.view(), expected_dx.grad(mode),
                                              options);
      kernels::conv2d_backward_filter_reference(stream, dy.view(), a.x.view(), expected_dfilter.grad(mode),
                                                options);
    });
    // Adding to a gradient rounds its sum twice.
    expect_near(dx.values(), expected_dx.values(), 1e-5);
    expect_near(dfilter.values(), expected_dfilter.values(), 1e-5);
    EXPECT_THAT(a.gpu.take_warnings(),
                ElementsAre(HasSubstr("conv2d backward data"), HasSubstr("conv2d backward filter")));
  }
}

TEST_F(CudnnFailures, ReportsMissingMemoryIfNoOtherPlanRuns) {
  const auto failing = with([](auto& cudnn) { cudnn.failing = failures(kEveryEngine); });
  for (const bool autotune : {false, true}) {
    Convolution<float> a;
    a.gpu.set_autotune(autotune);
    EXPECT_THAT(message_of<DeviceError>([&] { a.forward(); }), HasSubstr("64.00 GiB"));
  }
}

TEST_F(CudnnFailures, SeparatesBiasAndReluIfNoFusedPlanRuns) {
  const auto failing = with([](auto& cudnn) { cudnn.failing = failures({engine::kKnobs}); });
  Convolution<bfloat16> a;
  a.gpu.set_autotune(false);
  const std::uint64_t before = emulator::launches();
  a.forward(true, true);
  EXPECT_EQ(emulator::launches() - before, 1u);
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kTensorCore, 1)));
  EXPECT_THAT(a.gpu.take_warnings(), ElementsAre(HasSubstr("; bias and ReLU run after the convolution")));
  a.gpu.set_autotune(true);
  a.forward(true, true);
  EXPECT_THAT(a.gpu.algorithm_cache().find(std::string(kForwardHalf) + " bias relu"),
              Optional(std::string("separate")));
  EXPECT_THAT(a.gpu.take_warnings(), IsEmpty());
}

TEST_F(CudnnFailures, UsesNextPlanIfDriverCannotLoadOne) {
  const auto failing = with([](auto& cudnn) {
    cudnn.refused = failures({engine::kNondeterministic}, CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
  });
  Convolution<float> a;
  a.gpu.set_autotune(false);
  a.forward();
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kKnobs, 1)));
  EXPECT_THAT(a.gpu.take_warnings(), IsEmpty()) << "such a plan does not exist";
}

TEST_F(CudnnFailures, UsesPlainLoopsIfNoPlanFinalizes) {
  const auto none = with(
      [](auto& cudnn) { cudnn.refused = failures(kEveryEngine, CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER); });
  for (const bool autotune : {false, true}) {
    Convolution<bfloat16> a;
    a.gpu.set_autotune(autotune);
    a.forward(true, true);
    expect_same_bits(a.y.values(), reference_of(a, true, true));
    a.forward(true, true);
    EXPECT_THAT(a.gpu.take_warnings(),
                ElementsAre(AllOf(StartsWith("no engine of " + cudnn_version_text() + " computes " +
                                             std::string(kForwardHalf) +
                                             " on cuda:0: CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER (5001)"),
                                  HasSubstr("; plain loops compute it, which are slow"))));
  }
}

TEST_F(CudnnFailures, DoesNotStorePlanThatCannotRun) {
  const auto failing = with([](auto& cudnn) { cudnn.failing = failures({engine::kKnobs}); });
  Convolution<float> a;
  a.forward();
  EXPECT_THAT(a.gpu.algorithm_cache().entries(), ElementsAre(Pair(kForward, "engine 3 workspace 0")));
}

TEST_F(CudnnFailures, DoesNotTryAgain) {
  Convolution<float> a;
  {
    const auto failing = with([](auto& cudnn) { cudnn.failing = failures({engine::kKnobs}); });
    a.gpu.set_autotune(false);
    a.store(kForward, kKnobs);
    a.forward();
  }
  runs_by_engine();
  a.gpu.set_autotune(true);  // every plan could run now
  a.forward();
  EXPECT_THAT(a.gpu.algorithm_cache().find(kForward), Optional(AllOf(Ne(kKnobs), StartsWith("engine 11"))));
}

TEST_F(CudnnFailures, ReplacesStoredPlanThatCannotRun) {
  const auto failing = with([](auto& cudnn) { cudnn.failing = failures({engine::kKnobs}); });
  for (const bool autotune : {false, true}) {
    Convolution<float> a;
    a.gpu.set_autotune(autotune);
    a.store(kForward, kKnobs);
    a.forward();
    a.forward();
    EXPECT_THAT(runs_by_engine(), Contains(Key(engine::kNondeterministic)));
    EXPECT_THAT(a.gpu.take_warnings(), ElementsAre(StartsWith(std::string(kKnobs))));
  }
}

TEST_F(CudnnFailures, ReportsGpuThatHasFailed) {
  Convolution<float> a;
  a.forward();
  on(a.gpu.stream(), [](auto& stream) { break_gpu(stream); });
  EXPECT_THAT(message_of<DeviceError>([&] { a.forward(); }), HasSubstr("unspecified launch failure"));
  EXPECT_THAT(a.gpu.take_warnings(), IsEmpty());
  EXPECT_THAT(take_gpu_report(), HasSubstr("__trap()"));
}

// The emulated cuDNN invalidates the capture.
TEST_F(CudnnFailures, AbandonsCaptureAndUsesOtherPlanAfterwards) {
  Convolution<float> a;
  a.gpu.set_autotune(false);
  a.forward();
  const auto forward = [&] {
    on(a.gpu.stream(), [&](auto& stream) {
      kernels::conv2d_forward(stream, a.x.view(), a.filter.view(), ConstView(), a.y.view(), kBody.options());
    });
  };
  const auto failing = with([](auto& cudnn) {
    cudnn.failing = failures({engine::kNondeterministic}, CUDNN_STATUS_EXECUTION_FAILED_CUDART);
  });
  EXPECT_THAT(message_of<CaptureError>([&] { CudaGraph(a.gpu, forward); }),
              HasSubstr("engine 3 workspace 0"));
  runs_by_engine();
  forward();
  a.gpu.synchronize();
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kKnobs, 1)));
  EXPECT_EQ(a.gpu.take_warnings().size(), 1u);
  const Array<float> expected = a.y.values();

  CudaGraph graph(a.gpu, forward);
  on(a.gpu.stream(), [&](auto& stream) { kernels::fill(stream, 0, a.y.view()); });
  graph.replay();
  expect_same_bits(a.y.values(), expected);
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kKnobs, 1)));
}

}  // namespace
}  // namespace convoy
