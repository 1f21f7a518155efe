// Tests of kernels/matmul.h with failures and missing algorithms, which the emulator's cuBLASLt can simulate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <variant>

#include "convoy/kernels/matmul.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "emulator/runtime/emulator.h"
#include "tests/cuda_emulator/vendor/vendor.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
namespace algorithm = emulator::cublaslt_algorithm;

constexpr std::int64_t kRows = 16, kFeatures = 64, kOutputs = 32;

/// Offsets of the arrays in their allocations, in elements.
struct Offsets {
  std::size_t x = 0, weight = 0, y = 0;
};

/// A linear layer with bias and ReLU, and its expected result.
template <class T>
class Layer {
 public:
  explicit Layer(Offsets offsets = {}, int gpu = 0)
      : gpu_(DeviceContext::create_cuda(gpu)), offsets_(offsets) {
    const auto exact_x = x_.template to<double>(), exact_weight = weight_.template to<double>(),
               exact_bias = bias_.template to<double>();
    CpuStream cpu({.threads = 1});
    kernels::linear_forward(cpu, exact_x.view(), exact_weight.view(), exact_bias.view(), expected_.view(),
                            true);
  }

  const DeviceContext& gpu() const { return gpu_; }
  CudaStream& stream() const { return std::get<std::reference_wrapper<CudaStream>>(gpu_.stream()); }
  void run(CudaStream& stream) const {
    kernels::linear_forward(stream, gpu_x_.view(), gpu_weight_.view(), gpu_bias_.view(), y_.view(), true);
  }
  /// Runs the layer on a new stream, and waits for it.
  void run() const {
    CudaStream new_stream(0, gpu_.memory());
    run(new_stream);
    new_stream.synchronize();
  }
  void expect_correct() const {
    const double gemm_rounding = testing::unit_roundoff<T>() * (4 * std::sqrt(double{kFeatures}) / 3 + 1);
    testing::expect_rounded_near(y_.values(), expected_,
                                 testing::dot_tolerance<T>(kFeatures) + gemm_rounding);
  }
  /// Clears the result.
  void clear() const { copy_bytes(Device::cpu(), Array<T>({kRows, kOutputs}).view(), gpu_, y_.view()); }

 private:
  DeviceContext gpu_;
  Offsets offsets_;
  Array<T> x_ = Array<T>::random({kRows, kFeatures}, 1);
  Array<T> weight_ = Array<T>::random({kOutputs, kFeatures}, 2);
  Array<T> bias_ = Array<T>::random({kOutputs}, 3);
  Array<double> expected_{{kRows, kOutputs}};
  DeviceArray<T> gpu_x_{gpu_, x_, offsets_.x}, gpu_weight_{gpu_, weight_, offsets_.weight},
      gpu_bias_{gpu_, bias_}, y_{gpu_, {kRows, kOutputs}, offsets_.y};
};

class CublasMatmul : public testing::GpuTest {
 protected:
  void SetUp() override {
    testing::GpuTest::SetUp();
    emulator::reset_vendor_counts();
  }

  static emulator::VendorSettings without(std::set<std::uint64_t> absent) {
    emulator::VendorSettings settings = emulator::vendor_settings();
    settings.cublaslt.absent = std::move(absent);
    return settings;
  }
  static std::map<std::uint64_t, int> gemms() { return emulator::vendor_counts().gemms; }
  /// Returns the number of kernels of this project that f launches.
  static std::uint64_t launches_in(const std::function<void()>& f) {
    const std::uint64_t before = emulator::launches();
    f();
    return emulator::launches() - before;
  }
};

TEST_F(CublasMatmul, LinearLayerIsOneGemm) {
  const Layer<float> layer;
  EXPECT_EQ(launches_in([&] { layer.run(); }), 0u);
  layer.expect_correct();
  EXPECT_THAT(gemms(), ElementsAre(Pair(algorithm::kAligned, 1)));
}

TEST_F(CublasMatmul, UsesFirstAvailableAlgorithm) {
  const Layer<bfloat16> layer;
  const emulator::ScopedVendorSettings settings(without({algorithm::kAligned}));
  layer.run();
  layer.expect_correct();
  EXPECT_THAT(gemms(), ElementsAre(Pair(algorithm::kSplit, 1)));
}

// An algorithm with vector loads would fail for any of the arrays.
TEST_F(CublasMatmul, UsesOtherAlgorithmForUnalignedAddress) {
  for (const Offsets& offsets : {Offsets{.x = 1}, {.weight = 1}, {.y = 1}}) {
    emulator::reset_vendor_counts();
    const Layer<float16> layer(offsets);
    layer.run();
    layer.expect_correct();
    EXPECT_THAT(gemms(), ElementsAre(Pair(algorithm::kSplit, 1)));
  }
}

// If cuBLASLt does not support the epilogue, as in f64, it computes the GEMM only.
TEST_F(CublasMatmul, RunsBiasAndReluSeparatelyIfNotFused) {
  const Layer<double> layer;
  EXPECT_EQ(launches_in([&] { layer.run(); }), 1u);  // bias and ReLU
  layer.expect_correct();
  EXPECT_THAT(gemms(), ElementsAre(Pair(algorithm::kAligned, 1)));
}

TEST_F(CublasMatmul, UsesReferenceKernelIfNoAlgorithmExists) {
  const emulator::ScopedVendorSettings settings(
      without({algorithm::kAligned, algorithm::kSplit, algorithm::kPlain}));
  const Layer<float> layer;
  EXPECT_EQ(launches_in([&] { layer.run(); }), 2u);  // the GEMM; bias and ReLU
  layer.expect_correct();
  EXPECT_THAT(gemms(), IsEmpty());
}

TEST_F(CublasMatmul, FailedGemmReportsCallAndReason) {
  emulator::VendorSettings settings = emulator::vendor_settings();
  settings.cublaslt.failing = {algorithm::kAligned};
  const emulator::ScopedVendorSettings scoped(settings);
  const Layer<float> layer;
  const std::string text = testing::message_of<DeviceError>([&] { layer.run(); });
  EXPECT_THAT(text, HasSubstr("cublasLtMatmul("));
  EXPECT_THAT(text, HasSubstr("failed: the GPU program failed to execute (matmul.cpp:"));
}

// A handle belongs to the GPU that was current when it was created.
TEST_F(CublasMatmul, AlternatesBetweenGpus) {
  const Layer<float> first({}, 0), second({}, 1);
  for (int turn = 0; turn < 2; ++turn) {
    first.run(first.stream());
    second.run(second.stream());
    first.expect_correct();
    second.expect_correct();
  }
}

// Each replay reads the current contents of its arrays.
TEST_F(CublasMatmul, GemmsCanBeCaptured) {
  const emulator::ScopedVendorSettings settings(
      without({algorithm::kAligned}));  // the next algorithm has a workspace
  const Layer<float> layer;
  layer.run(layer.stream());
  layer.gpu().synchronize();
  emulator::reset_vendor_counts();

  CudaGraph graph(layer.gpu(), [&] { layer.run(layer.stream()); });
  EXPECT_THAT(gemms(), IsEmpty());
  for (int replays = 1; replays <= 2; ++replays) {
    layer.clear();
    graph.replay();
    layer.gpu().synchronize();
    layer.expect_correct();
    EXPECT_THAT(gemms(), ElementsAre(Pair(algorithm::kSplit, replays)));
  }
}

}  // namespace
}  // namespace convoy
