// The memory of a training step on a GPU: what backward keeps, and what a graph's pool needs for it.
#include <gtest/gtest.h>

#include <functional>
#include <utility>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "tests/testing/support/gpu.h"

namespace convoy::testing {
namespace {

constexpr std::int64_t kChannels = 16;
constexpr std::size_t kMiB = std::size_t{1} << 20;

/// The arrays of a batch norm.
struct Norm {
  explicit Norm(const DeviceContext& gpu)
      : gamma(Tensor::full({kChannels}, 1.5, DType::f32, gpu), true),
        beta(Tensor::full({kChannels}, 0.125, DType::f32, gpu), true),
        running{
            Tensor::zeros({kChannels}, DType::f32, gpu), Tensor::full({kChannels}, 1, DType::f32, gpu), {}} {}

  Variable operator()(const Variable& x, FusedActivation activation, const Variable& residual = {}) const {
    return batch_norm(x, gamma, beta, running, /*training=*/true, {.activation = activation}, residual);
  }

  Variable gamma, beta;
  BatchNormStatistics running;
};

/// Residual blocks, x -> relu(norm(conv(activation(norm(conv(x))))) + x), whose arrays have `array_bytes` each.
class Blocks {
 public:
  /// `keeps`: an operation between each first batch norm and its convolution keeps the result.
  Blocks(const DeviceContext& gpu, int count, std::size_t array_bytes,
         FusedActivation activation = FusedActivation::relu, bool keeps = false)
      : x_(ramp({static_cast<std::int64_t>(array_bytes) / 2 / 1024 / kChannels, 32, 32, kChannels}, gpu)),
        filter_(ramp({kChannels, 1, 1, kChannels}, gpu), true),
        norm_(gpu),
        count_(count),
        activation_(activation),
        keeps_(keeps) {}

  void step(const std::function<void()>& after_forward = [] {}) const {
    Variable x = x_;
    for (int i = 0; i < count_; ++i) {
      const Variable y = norm_(conv2d(x, filter_, {}), activation_);
      x = norm_(conv2d(keeps_ ? transpose(transpose(y, 1, 2), 1, 2) : y, filter_, {}), FusedActivation::relu,
                x);
    }
    const Variable loss = sum(std::exchange(x, Variable()));
    after_forward();
    backward(loss);
  }
  const Variable& filter() const { return filter_; }

 private:
  /// Returns numbers that differ between neighbors, exact in bf16.
  static Tensor ramp(const Shape& shape, const DeviceContext& gpu) {
    std::vector<float> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 127) / 64 - 1;
    return Tensor::from(values, shape, Device::cpu()).to(DType::bf16).to(gpu);
  }

  Variable x_, filter_;
  Norm norm_;
  int count_;
  FusedActivation activation_;
  bool keeps_;
};

class CudaStepMemory : public GpuTest {
 protected:
  /// Arrays in memory, without those from before the step.
  struct Counts {
    std::size_t after_forward, peak;
  };
  /// Counts the arrays of `array_bytes` bytes of a step. What is much smaller, such as statistics and gradients of
  /// filters, must not add up to an array.
  Counts count(const Blocks& blocks, std::size_t array_bytes) {
    CachingAllocator& memory = gpu_.memory();
    blocks.step();  // makes what later steps use again
    const std::size_t before = memory.stats().in_use;
    memory.reset_peak();
    std::size_t after_forward = 0;
    blocks.step([&] { after_forward = memory.stats().in_use - before; });
    gpu_.synchronize();
    const std::size_t peak = memory.stats().peak_in_use - before;
    EXPECT_LT(peak % array_bytes, array_bytes / 8);
    EXPECT_LT(after_forward % array_bytes, array_bytes / 8);
    return {after_forward / array_bytes, peak / array_bytes};
  }

  DeviceContext gpu_ = DeviceContext::create(Device::best(), {}, {.deterministic = true});
};

// Backward keeps the results of both convolutions and that of each block. It computes that of a first batch norm again,
// if that is cheap. If not, the peak has the gradients of the last block's result, of its input and of the result of its
// last convolution. If so, it is later: then three pending gradients of filters hold two or three arrays each.
TEST_F(CudaStepMemory, KeepsNoResultOfABatchNormThatCanBeComputedAgain) {
  constexpr std::size_t kBytes = kMiB / 4;
  constexpr int kBlocks = 4;
  const Counts kept = count(Blocks(gpu_, kBlocks, kBytes, FusedActivation::gelu), kBytes);
  EXPECT_EQ(kept.after_forward, 4U * kBlocks);
  EXPECT_EQ(kept.peak, 4U * kBlocks + 3);
  const Counts again = count(Blocks(gpu_, kBlocks, kBytes), kBytes);
  EXPECT_EQ(again.after_forward, 3U * kBlocks);
  EXPECT_EQ(again.peak, 17U);  // 6 of two blocks, 2 of the next, 8 of the pending gradients, 1 being computed
}

TEST_F(CudaStepMemory, AGraphNeedsNoMoreThanTheStepOpByOp) {
  constexpr std::size_t kBytes = 2 * kMiB, kStep = 16 * kMiB;
  const Blocks blocks(gpu_, 1, kBytes);
  const Counts step = count(blocks, kBytes);
  gpu_.memory().trim();
  gpu_.memory().release(gpu_.memory().allocate(kStep), kStep);  // one free range
  const CudaGraph graph(gpu_, [&] { blocks.step(); });
  EXPECT_EQ(graph.pool_bytes() / kBytes, step.peak);
}

// The gradient of the second filter reads the result that is computed again, on the side stream.
TEST_F(CudaStepMemory, ComputesTheSameBitsAgain) {
  for_each_order([&] {
    std::vector<std::vector<double>> gradients;
    for (const bool keeps : {false, true}) {
      const Blocks blocks(gpu_, 2, kMiB / 8, FusedActivation::relu, keeps);
      blocks.step();
      gradients.push_back(blocks.filter().grad().to(DType::f64).to_vector<double>());
    }
    EXPECT_EQ(gradients[0], gradients[1]);
  });
}

}  // namespace
}  // namespace convoy::testing
