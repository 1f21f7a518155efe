// Tests of the descriptors of convolutions with the real cuDNN. Since version 9.8, cuDNN can make heuristics,
// engines and plans for a GPU that is described to it, so no GPU is needed and nothing is computed. The
// emulator's cuDNN must behave like this.
#include <gtest/gtest.h>

#include "convoy/kernels/cuda/cudnn/conv2d_graph.h"
#include "convoy/kernels/cuda/cudnn/plan.h"
#include "convoy/kernels/runtime/library_versions.h"
#include "tests/kernels/conv2d_cases.h"
#include "tests/kernels/cuda/planned/described_gpu.h"

namespace convoy {
namespace {

using testing::ConvCase;

// n, h, w, i, o, kh, kw, stride, padding
constexpr ConvCase kBody{128, 56, 56, 64, 64, 3, 3, 1, 1};
constexpr ConvCase kResNet18[] = {
    {128, 224, 224, 3, 64, 7, 7, 2, 3},  kBody,
    {128, 56, 56, 64, 128, 3, 3, 2, 1},  {128, 56, 56, 64, 128, 1, 1, 2, 0},
    {128, 28, 28, 128, 128, 3, 3, 1, 1}, {128, 28, 28, 128, 256, 3, 3, 2, 1},
    {128, 28, 28, 128, 256, 1, 1, 2, 0}, {128, 14, 14, 256, 256, 3, 3, 1, 1},
    {128, 14, 14, 256, 512, 3, 3, 2, 1}, {128, 14, 14, 256, 512, 1, 1, 2, 0},
    {128, 7, 7, 512, 512, 3, 3, 1, 1},
};

kernels::Conv2dProblem problem_of(const ConvCase& c, kernels::Conv2dDirection direction, DType dtype,
                                  bool bias = false, bool relu = false) {
  return {.direction = direction,
          .dtype = dtype,
          .sizes = kernels::ConvSizes(c.x(), c.filter(), c.y(), c.options()),
          .bias = bias,
          .relu = relu,
          .alignment = kernels::kCudnnAlignment};
}

/// Returns all problems of a convolution: its three directions, and forward with each epilogue.
std::vector<kernels::Conv2dProblem> problems_of(const ConvCase& c, DType dtype) {
  return {problem_of(c, kernels::Conv2dDirection::forward, dtype),
          problem_of(c, kernels::Conv2dDirection::forward, dtype, true, false),
          problem_of(c, kernels::Conv2dDirection::forward, dtype, true, true),
          problem_of(c, kernels::Conv2dDirection::backward_data, dtype),
          problem_of(c, kernels::Conv2dDirection::backward_filter, dtype)};
}

class CudnnLibrary : public ::testing::Test {
 protected:
  /// Returns the first plans of the first heuristics that give any, at most `maximum`.
  std::vector<kernels::CudnnPlan> plans(const kernels::Conv2dProblem& problem,
                                        const kernels::EngineRules& rules, std::size_t maximum = 1) {
    std::vector<kernels::CudnnPlan> found;
    for (const cudnnBackendHeurMode_t mode : kernels::kCudnnHeuristics) {
      kernels::make_plans(gpu_, kernels::make_conv2d_graph(gpu_, problem), rules, mode,
                          [&](kernels::CudnnPlan plan) {
                            found.push_back(std::move(plan));
                            return found.size() == maximum;
                          });
      if (!found.empty()) break;
    }
    return found;
  }

  testing::DescribedGpu gpu_{testing::gpu_description("H100")};
};

TEST_F(CudnnLibrary, ReportsVersion) {
  EXPECT_EQ(cudnn_version_text().rfind("cuDNN 9.", 0), 0u) << cudnn_version_text();
  EXPECT_EQ(cublaslt_version_text().rfind("cuBLASLt 1", 0), 0u) << cublaslt_version_text();
}

TEST_F(CudnnLibrary, PlansEveryConvolution) {
  for (const ConvCase& c : testing::kConvCases)
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      for (kernels::Conv2dProblem problem : problems_of(c, dtype))
        for (const int alignment : {kernels::kCudnnAlignment, static_cast<int>(size_of(dtype))})
          for (const bool deterministic : {false, true}) {
            problem.alignment = alignment;
            SCOPED_TRACE(problem.text());
            EXPECT_EQ(plans(problem, {.dtype = dtype, .deterministic = deterministic}).size(), 1u);
          }
}

// Batch size 128, in each precision and direction. The text of a plan must give the same plan.
TEST_F(CudnnLibrary, PlansResNet18AndRestoresPlansFromText) {
  for (const ConvCase& c : kResNet18)
    for (const kernels::EngineRules& rules : {kernels::EngineRules{.dtype = DType::f32},
                                              {.dtype = DType::f32, .tf32 = true},
                                              {.dtype = DType::f16},
                                              {.dtype = DType::bf16},
                                              {.dtype = DType::bf16, .deterministic = true}})
      for (const kernels::Conv2dProblem& problem : problems_of(c, rules.dtype)) {
        SCOPED_TRACE(problem.text());
        const std::vector<kernels::CudnnPlan> found = plans(problem, rules, 3);
        EXPECT_GE(found.size(), 1u);
        for (const kernels::CudnnPlan& plan : found) {
          SCOPED_TRACE(plan.to_text());
          const auto again = kernels::CudnnPlan::from_text(gpu_, kernels::make_conv2d_graph(gpu_, problem),
                                                           rules, plan.to_text());
          ASSERT_TRUE(again.has_value());
          EXPECT_EQ(again->to_text(), plan.to_text());
          EXPECT_EQ(again->workspace_bytes(), plan.workspace_bytes());
        }
      }
}

// The fastest f32 engines use tensor cores, which round the operands.
TEST_F(CudnnLibrary, RoundsF32OperandsOnlyOnRequest) {
  for (const kernels::Conv2dProblem& problem : problems_of(kBody, DType::f32)) {
    SCOPED_TRACE(problem.text());
    const std::vector<kernels::CudnnPlan> rounded = plans(problem, {.dtype = DType::f32, .tf32 = true});
    ASSERT_EQ(rounded.size(), 1u);
    const auto graph = kernels::make_conv2d_graph(gpu_, problem);
    const std::string choice = rounded.front().to_text();
    EXPECT_FALSE(kernels::CudnnPlan::from_text(gpu_, graph, {.dtype = DType::f32}, choice)) << choice;
    EXPECT_TRUE(kernels::CudnnPlan::from_text(gpu_, graph, {.dtype = DType::f32, .tf32 = true}, choice))
        << choice;
  }
}

// Planted faults: descriptors that contradict each other.
TEST_F(CudnnLibrary, ReportsRefusedGraphsWithTheReasonOfCudnn) {
  const auto refusal = [&](auto&& spoil) -> std::string {
    kernels::Conv2dProblem problem = problem_of(kBody, kernels::Conv2dDirection::forward, DType::bf16);
    spoil(problem);
    try {
      kernels::make_conv2d_graph(gpu_, problem);
    } catch (const DeviceError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal([](auto&) {}), "");
  const std::string too_many_rows = refusal([](auto& problem) { ++problem.sizes.oh; });
  EXPECT_NE(too_many_rows.find("CUDNN_STATUS_BAD_PARAM (2000): is_valid_spatial_dim("), std::string::npos)
      << too_many_rows;
  const std::string no_stride = refusal([](auto& problem) { problem.sizes.stride = 0; });
  EXPECT_NE(no_stride.find("CUDNN_STATUS_BAD_PARAM (2000)"), std::string::npos) << no_stride;
  const std::string odd_alignment = refusal([](auto& problem) { problem.alignment = 3; });
  EXPECT_NE(odd_alignment.find("_ptrAlignment % sizeofCudnnType(_dataType) != 0"), std::string::npos)
      << odd_alignment;
}

TEST_F(CudnnLibrary, RejectsMalformedPlanText) {
  const kernels::Conv2dProblem problem = problem_of(kBody, kernels::Conv2dDirection::forward, DType::bf16);
  const auto graph = kernels::make_conv2d_graph(gpu_, problem);
  const std::string choice = plans(problem, {.dtype = DType::bf16}).front().to_text();
  ASSERT_TRUE(kernels::CudnnPlan::from_text(gpu_, graph, {.dtype = DType::bf16}, choice));
  for (const std::string& text :
       {std::string(), std::string("engine"), std::string("engine 0"), std::string("engine 0 knobs"),
        std::string("engine 0 workspace"), std::string("engine -1 workspace 0"),
        std::string("engine 1000000 workspace 0"), std::string("engine 99999999999999999999 workspace 0"),
        std::string("engine 0 knobs 2 workspace 0"), std::string("engine 0 knobs 2= workspace 0"),
        std::string("engine 0 knobs 999=1 workspace 0"), std::string("engine 0 knobs 2=123456 workspace 0"),
        std::string("engine 0 workspace 1"), choice + " more", choice + "0", "x" + choice})
    EXPECT_FALSE(kernels::CudnnPlan::from_text(gpu_, graph, {.dtype = DType::bf16}, text)) << text;
}

}  // namespace
}  // namespace convoy
