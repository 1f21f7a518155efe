// Tests of batch norms that are fused into convolutions on a GPU: by ForwardContext::fuse_batch_norms, and by
// the entries of the algorithm cache.
#include <cmath>

#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "tests/models/fused_batch_norm.h"
#include "tests/testing/support/gpu.h"

namespace convoy::testing {
namespace {

using CudaFusedBatchNorm = GpuTest;

const Shape kImages{2, 6, 6, 3};

double relative_distance(const std::vector<double>& found, const std::vector<double>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / norm);
}

// In f64 only rounding differs, by 1e-16 of each term. Two training steps amplify it by at most 1,000.
TEST_F(CudaFusedBatchNorm, BlocksMatchTheCpu) {
  const auto net = two_blocks();
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 1});
  const Steps expected = train(*net, kImages, DType::f64, cpu, false, 2);
  const Steps found = train(*net, kImages, DType::f64, DeviceContext::create_cuda(0), true, 2);
  EXPECT_EQ(found.ops.at("norm_conv2d"), 3);
  EXPECT_LT(relative_distance(found.losses, expected.losses), 1e-13);
  EXPECT_LT(relative_distance(found.state, expected.state), 1e-13);
}

TEST_F(CudaFusedBatchNorm, BlocksTrainBitForBitAsSeparateLayers) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const auto net = two_blocks();
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    SCOPED_TRACE(to_string(dtype));
    const Steps separate = train(*net, kImages, dtype, gpu, false, 2);
    const Steps fused = train(*net, kImages, dtype, gpu, true, 2);
    expect_equal(fused, separate);
    EXPECT_EQ(fused.ops.at("norm_conv2d"), 3);
    EXPECT_LT(fused.saved, separate.saved);
  }
}

/// Returns a network with a residual block of 64 channels, which the fused kernels compute in f16 and bf16.
std::shared_ptr<nn::Sequential> wide_block() {
  const Layers block = {{"conv1", conv(64, 64, 3)},
                        {"bn1", norm(64)},
                        {"relu1", relu()},
                        {"conv2", conv(64, 64, 3)},
                        {"bn2", norm(64)}};
  return std::make_shared<nn::Sequential>(
      Layers{{"conv", conv(3, 64, 3)},
             {"block", std::make_shared<nn::ResidualBlock>(block, nullptr)},
             {"pool", std::make_shared<nn::GlobalAvgPool2d>()},
             {"fc", std::make_shared<nn::Linear>(64, 10)}});
}

const std::string kStatisticsKey = "conv2d statistics bf16 n2 6x6x64 k64 3x3 s1 p1";
const std::string kNormKey = "norm conv2d bf16 n2 6x6x64 k64 3x3 s1 p1";

class CudaFusedKernels : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (!IsSkipped()) use(DeviceContext::create_cuda(0));
  }
  void use(const DeviceContext& device) {
    gpu_ = device;
    gpu_.set_autotune(false);
  }
  Steps steps(DType dtype = DType::bf16) {
    return train(*wide_block(), kImages, dtype, gpu_, /*fuse=*/false, 2);
  }
  AlgorithmCache& cache() { return gpu_.algorithm_cache(); }

  DeviceContext gpu_ = Device::cpu();
};

TEST_F(CudaFusedKernels, FollowTheEntriesOfTheAlgorithmCache) {
  using Ops = std::map<std::string, int>;
  const auto convolutions_of = [](const Steps& run) {
    Ops ops;
    for (const char* name : {"conv2d", "conv2d_statistics", "norm_conv2d", "batch_norm"})
      if (run.ops.contains(name)) ops[name] = run.ops.at(name);
    return ops;
  };
  const Steps separate = steps();
  EXPECT_EQ(convolutions_of(separate), (Ops{{"conv2d", 3}, {"batch_norm", 2}}));
  const auto expect_fused = [&](const Ops& ops) {
    const Steps fused = steps();
    EXPECT_EQ(convolutions_of(fused), ops);
    EXPECT_NE(fused.state, separate.state) << "the sums have another order";
    // A value of bf16 has an error of 2^-9. Two steps amplify the differences of roundings.
    EXPECT_LT(relative_distance(fused.losses, separate.losses), 0x1p-7);
    EXPECT_LT(relative_distance(fused.state, separate.state), 0x1p-6);
    return fused;
  };

  cache().insert(kNormKey, "separate");
  cache().insert(kStatisticsKey, "another word");
  expect_equal(steps(), separate);
  cache().insert(kStatisticsKey, "fused");
  expect_fused({{"conv2d", 1}, {"conv2d_statistics", 2}, {"batch_norm", 2}});
  cache().insert(kStatisticsKey, "separate");
  cache().insert(kNormKey, "fused");
  EXPECT_LT(
      expect_fused({{"conv2d", 1}, {"conv2d_statistics", 1}, {"norm_conv2d", 1}, {"batch_norm", 1}}).saved,
      separate.saved);
  cache().insert(kStatisticsKey, "fused");
  const Steps fused =
      expect_fused({{"conv2d", 1}, {"conv2d_statistics", 1}, {"norm_conv2d", 1}, {"batch_norm", 1}});
  expect_equal(steps(), fused);
}

TEST_F(CudaFusedKernels, IgnoreEntriesThatTheyCannotCompute) {
  cache().insert("norm conv2d f32 n2 6x6x64 k64 3x3 s1 p1", "fused");
  EXPECT_EQ(steps(DType::f32).ops.count("norm_conv2d"), 0u);
}

TEST_F(CudaFusedKernels, AreTimedWhenTheStreamAutotunes) {
  steps();
  EXPECT_FALSE(cache().find(kNormKey) || cache().find(kStatisticsKey));
  gpu_.set_autotune(true);
  steps();
  EXPECT_FALSE(cache().find(kNormKey) || cache().find(kStatisticsKey))
      << "so small that a launch takes longer";
  std::get<std::reference_wrapper<CudaStream>>(gpu_.stream())
      .get()
      .local<kernels::implicit_gemm::MinimumFlops>()
      .value = 1;
  steps();
  for (const std::string& key : {kNormKey, kStatisticsKey}) {
    const std::optional<std::string> found = cache().find(key);
    EXPECT_TRUE(found == "fused" || found == "separate") << key;
  }
}

TEST_F(CudaFusedKernels, AreNotUsedByDeterministicStreams) {
  use(DeviceContext::create_cuda(0, {.deterministic = true}));
  cache().insert(kNormKey, "fused");
  EXPECT_EQ(steps().ops.count("norm_conv2d"), 0u);
}

}  // namespace
}  // namespace convoy::testing
