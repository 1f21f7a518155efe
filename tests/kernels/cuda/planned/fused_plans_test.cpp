// Plans of fused graphs with the real cuDNN, whose kernels NVRTC compiles for a described GPU. A stub of the
// CUDA driver accepts them and records them, so no GPU is needed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>

#include "convoy/kernels/cuda/cudnn/conv2d_graph.h"
#include "convoy/kernels/runtime/library_versions.h"
#include "tests/kernels/cuda/driver_stub/driver_stub.h"
#include "tests/kernels/cuda/planned/cubin.h"
#include "tests/kernels/cuda/planned/described_gpu.h"
#include "tests/kernels/cuda/planned/fused_graphs.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

using kernels::CudnnDescriptor;
using kernels::CudnnPlan;

const std::filesystem::path kTable = testing::source_path("bench/results/planned/fused.csv");
constexpr FusedGraph kFusedGraphs[] = {FusedGraph::scale_bias_add_relu, FusedGraph::relu_gradient,
                                       FusedGraph::channel_sums};

/// A 3x3 convolution of the first group of a ResNet-18 for CIFAR, batch size 128.
const kernels::ConvSizes kSizes({128, 32, 32, 64}, {64, 3, 3, 64}, {128, 32, 32, 64},
                                {.stride = 1, .padding = 1});

/// Makes at most `maximum` plans of a graph for an H100. Returns one line of the table for each: graph, type,
/// plan, and registers and local bytes of each kernel that was compiled.
std::vector<std::string> table_lines(FusedGraph fused, DType dtype, std::size_t maximum) {
  const DescribedGpu gpu(gpu_description("H100"));
  std::vector<std::string> lines;
  auto begin = std::chrono::steady_clock::now();
  take_loaded_images();
  const std::string reason = kernels::make_plans(
      gpu, make_fused_graph(gpu, fused, dtype, kSizes), {.dtype = dtype}, CUDNN_HEUR_MODE_A,
      [&](const CudnnPlan& plan) {
        const auto end = std::chrono::steady_clock::now();
        std::string line = fmt::format("{},{},{}", to_string(fused), to_string(dtype), plan.to_text());
        for (const std::string& image : take_loaded_images())
          for (const KernelResources& kernel : kernels_of_image(image))
            line += fmt::format(",{} {} {}", kernel.name, kernel.registers, kernel.local_bytes);
        std::cout << fmt::format("{:.2f} s: {}\n", std::chrono::duration<double>(end - begin).count(), line);
        lines.push_back(std::move(line));
        begin = std::chrono::steady_clock::now();
        return lines.size() == maximum;
      });
  EXPECT_EQ(reason, "");
  return lines;
}

std::vector<std::string> committed_lines(FusedGraph fused, DType dtype) {
  std::ifstream file(kTable);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(fmt::format("{},{},", to_string(fused), to_string(dtype)))) lines.push_back(line);
  return lines;
}

/// Writes all plans of all graphs.
void update_table() {
  std::ofstream file(kTable);
  file << "# " << cudnn_version_text() << ", H100\ngraph,type,plan,kernel registers local_bytes\n";
  for (const FusedGraph fused : kFusedGraphs)
    for (const DType dtype : {DType::f16, DType::bf16})
      for (const std::string& line : table_lines(fused, dtype, 100)) file << line << '\n';
}

// Each plan takes NVRTC about a second, so only the first of each graph is made here.
TEST(FusedPlans, FirstPlanOfEachGraphIsCompiledAsInTheTable) {
  if (std::getenv("CONVOY_UPDATE_PLANS") != nullptr) update_table();
  std::string version;
  std::ifstream file(kTable);
  std::getline(file, version);
  const bool is_comparable = version == fmt::format("# {}, H100", cudnn_version_text());
  if (!is_comparable)
    std::cout << "found " << cudnn_version_text() << ", the table is for " << version << '\n';
  for (const FusedGraph fused : kFusedGraphs) {
    SCOPED_TRACE(to_string(fused));
    const std::vector<std::string> found = table_lines(fused, DType::bf16, 1);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_NE(found.front().find(",cudnn_generated_"), std::string::npos) << found.front();
    const std::vector<std::string> committed = committed_lines(fused, DType::bf16);
    ASSERT_GE(committed.size(), 1u);
    if (is_comparable) {
      EXPECT_EQ(found.front(), committed.front());
    }
  }
}

double seconds_of(const std::function<void()>& f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What the emulated cuDNN imitates (tests/cuda_emulator/tests/vendor_plan_test.cpp).
TEST(FusedPlans, AreRestoredFromTheirCodeWithoutCompiling) {
  const DescribedGpu gpu(gpu_description("H100")), other_gpu(gpu_description("A100"));
  const kernels::EngineRules rules{.dtype = DType::bf16};
  const auto graph = make_fused_graph(gpu, FusedGraph::relu_gradient, DType::bf16, kSizes);
  std::optional<CudnnPlan> plan, restored;
  std::string reason;
  take_loaded_images();
  const double compiling = seconds_of([&] {
    kernels::make_plans(gpu, graph, rules, CUDNN_HEUR_MODE_A, [&](CudnnPlan made) {
      plan = std::move(made);
      return true;
    });
  });
  ASSERT_TRUE(plan.has_value());
  const std::vector<std::string> compiled = take_loaded_images();
  ASSERT_EQ(compiled.size(), 1u);
  const std::string text = plan->to_text(), code = plan->code();
  const double restoring =
      seconds_of([&] { restored = CudnnPlan::from_code(gpu, rules, text, code, reason); });
  ASSERT_TRUE(restored.has_value()) << reason;
  std::cout << fmt::format("compiled in {:.3f} s, restored in {:.3f} s from {} bytes\n", compiling, restoring,
                           code.size());
  EXPECT_EQ(restored->to_text(), text);
  EXPECT_EQ(restored->code(), code);
  EXPECT_EQ(restored->workspace_bytes(), plan->workspace_bytes());
  EXPECT_EQ(take_loaded_images(), compiled) << "the same machine code";
  EXPECT_LT(restoring, compiling / 5);
  EXPECT_EQ(code.find('\n'), std::string::npos) << "the algorithm cache keeps lines";

  const auto refusal = [&](const kernels::CudnnTarget& target, const std::string& from,
                           const std::string& to) {
    std::string changed = code;
    changed.replace(changed.find(from), from.size(), to);
    EXPECT_FALSE(CudnnPlan::from_code(target, rules, text, changed, reason)) << from;
    return reason;
  };
  EXPECT_NE(refusal(other_gpu, "", "").find("ARCH_MISMATCH (3007)"), std::string::npos) << reason;
  EXPECT_NE(refusal(gpu, "\"driverVer\":13000", "\"driverVer\":13010").find("ARCH_MISMATCH (3007)"),
            std::string::npos)
      << reason;
  EXPECT_NE(refusal(gpu, "\"cudnnVersion\":9", "\"cudnnVersion\":8").find("VERSION_MISMATCH"),
            std::string::npos)
      << reason;
  EXPECT_NE(refusal(gpu, code.substr(code.size() / 2), "").find("BAD_PARAM (2000)"), std::string::npos)
      << reason;
  EXPECT_NE(refusal(gpu, code, "").find("BAD_PARAM (2000)"), std::string::npos) << reason;
}

// Some of these plans are compiled at run time and some are not.
TEST(FusedPlans, AreTheSameIfCompiledBySeveralThreads) {
  const DescribedGpu gpu(gpu_description("H100"));
  const kernels::EngineRules rules{.dtype = DType::f16};
  const auto graph = make_fused_graph(gpu, FusedGraph::channel_sums, DType::f16, kSizes);
  const auto texts = [](const std::vector<CudnnPlan>& plans) {
    std::vector<std::pair<std::string, bool>> found;  // and whether the plan has code
    for (const CudnnPlan& plan : plans) found.emplace_back(plan.to_text(), !plan.code().empty());
    return found;
  };
  std::vector<CudnnPlan> one_by_one, all;
  const double alone = seconds_of([&] {
    kernels::make_plans(gpu, graph, rules, CUDNN_HEUR_MODE_A, [&](CudnnPlan plan) {
      one_by_one.push_back(std::move(plan));
      return false;
    });
  });
  const double together = seconds_of([&] {
    all = kernels::make_all_plans([&](std::size_t) -> const kernels::CudnnTarget* { return &gpu; }, graph,
                                  rules, CUDNN_HEUR_MODE_A);
  });
  std::cout << fmt::format("{} plans, one by one in {:.2f} s, by several threads in {:.2f} s\n", all.size(),
                           alone, together);
  EXPECT_GE(all.size(), 2u);
  EXPECT_EQ(texts(all), texts(one_by_one));
}

// So autotuning a ResNet-18 compiles nothing.
TEST(UnfusedPlans, ArePrecompiled) {
  const DescribedGpu gpu(gpu_description("H100"));
  for (const auto direction : {kernels::Conv2dDirection::forward, kernels::Conv2dDirection::backward_data,
                               kernels::Conv2dDirection::backward_filter}) {
    const kernels::Conv2dProblem problem{
        .direction = direction, .dtype = DType::bf16, .sizes = kSizes, .alignment = kernels::kCudnnAlignment};
    std::vector<CudnnPlan> plans;
    const double seconds = seconds_of([&] {
      plans = kernels::make_all_plans([&](std::size_t) -> const kernels::CudnnTarget* { return &gpu; },
                                      kernels::make_conv2d_graph(gpu, problem), {.dtype = DType::bf16},
                                      CUDNN_HEUR_MODE_A);
    });
    std::cout << fmt::format("{} plans in {:.4f} s: {}\n", plans.size(), seconds, problem.text());
    EXPECT_GE(plans.size(), 31u);
    for (const CudnnPlan& plan : plans) EXPECT_EQ(plan.code(), "") << plan.to_text();
  }
}

}  // namespace
}  // namespace convoy::testing
