// Plans of fused graphs with the real cuDNN, whose kernels NVRTC compiles for a described GPU. A stub of the
// CUDA driver accepts them and records them, so no GPU is needed.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>

#include "convoy/kernels/runtime/library_versions.h"
#include "tests/kernels/cuda/driver_stub/driver_stub.h"
#include "tests/kernels/cuda/planned/cubin.h"
#include "tests/kernels/cuda/planned/described_gpu.h"
#include "tests/kernels/cuda/planned/fused_graphs.h"

namespace convoy::testing {
namespace {

using kernels::CudnnDescriptor;
using kernels::CudnnPlan;

const std::string kTable = CONVOY_SOURCE_DIR "/bench/results/planned/fused.csv";
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

}  // namespace
}  // namespace convoy::testing
