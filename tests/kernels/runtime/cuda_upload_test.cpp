// Uploads that overlap with other work of the GPU. Only events order them, so a missing event gives a wrong
// result in some order of the streams.
#include "convoy/kernels/runtime/upload.h"

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <vector>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "tests/kernels/device_array.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;

const Shape kShape{37};
constexpr int kRounds = 12;

class CudaUpload : public testing::GpuTest {
 protected:
  static Array<float> round_values(int round) { return Array<float>(kShape, static_cast<float>(round + 1)); }
  static void keep(const DeviceContext& gpu, View from, View to) {
    on(gpu.stream(), [&](auto& s) { kernels::unary_forward(s, kernels::UnaryOp::relu, from, to); });
  }
  static void expect_rounds(const std::vector<std::unique_ptr<DeviceArray<float>>>& kept) {
    for (int round = 0; round < kRounds; ++round)
      testing::expect_same_bits(kept[static_cast<std::size_t>(round)]->values(), round_values(round));
  }
};

/// An array in pinned host memory.
class Pinned {
 public:
  explicit Pinned(const DeviceContext& gpu) : array_(gpu.host(), kShape) {}
  void fill(const Array<float>& values) {
    copy_bytes(Device::cpu(), values.view(), Device::cpu(), array_.view());
  }
  ConstView view() const { return array_.view(); }

 private:
  DeviceArray<float> array_;
};

TEST_F(CudaUpload, ComputationStartsAfterTheCopies) {
  for_each_order([&] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    std::vector<std::unique_ptr<DeviceArray<float>>> uploaded, kept;
    std::vector<std::unique_ptr<Pinned>> sources;
    Uploader uploader(gpu);
    for (int round = 0; round < kRounds; ++round) {
      sources.push_back(std::make_unique<Pinned>(gpu));
      sources.back()->fill(round_values(round));
      uploaded.push_back(std::make_unique<DeviceArray<float>>(gpu, kShape));
      kept.push_back(std::make_unique<DeviceArray<float>>(gpu, kShape));
      const Uploader::Copy copy{.from = sources.back()->view(), .to = uploaded.back()->view()};
      const Upload upload = uploader.start(std::span(&copy, 1));
      upload.wait_on_compute_stream();
      keep(gpu, uploaded.back()->view(), kept.back()->view());
    }
    expect_rounds(kept);
  });
}

TEST_F(CudaUpload, CopiesStartAfterEarlierComputation) {
  for_each_order([&] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<float> uploaded(gpu, kShape);  // the same memory in each round
    std::vector<std::unique_ptr<DeviceArray<float>>> kept;
    std::vector<std::unique_ptr<Pinned>> sources;
    Uploader uploader(gpu);
    for (int round = 0; round < kRounds; ++round) {
      sources.push_back(std::make_unique<Pinned>(gpu));
      sources.back()->fill(round_values(round));
      kept.push_back(std::make_unique<DeviceArray<float>>(gpu, kShape));
      const Uploader::Copy copy{.from = sources.back()->view(), .to = uploaded.view()};
      uploader.start(std::span(&copy, 1)).wait_on_compute_stream();
      keep(gpu, uploaded.view(), kept.back()->view());
    }
    expect_rounds(kept);
  });
}

TEST_F(CudaUpload, SourceMayChangeWhenDone) {
  for_each_order([&] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    Pinned source(gpu);
    std::vector<std::unique_ptr<DeviceArray<float>>> uploaded;
    Uploader uploader(gpu);
    for (int round = 0; round < kRounds; ++round) {
      source.fill(round_values(round));
      uploaded.push_back(std::make_unique<DeviceArray<float>>(gpu, kShape));
      const Uploader::Copy copy{.from = source.view(), .to = uploaded.back()->view()};
      const Upload upload = uploader.start(std::span(&copy, 1));
      upload.wait();
      EXPECT_TRUE(upload.done());
      source.fill(Array<float>(kShape, -1.0f));
      upload.wait_on_compute_stream();
    }
    expect_rounds(uploaded);
  });
}

TEST_F(CudaUpload, DestructorWaitsForCopies) {
  for_each_order([&] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    Pinned source(gpu);
    const DeviceArray<float> uploaded(gpu, kShape);
    source.fill(round_values(4));
    {
      Uploader uploader(gpu);
      const Uploader::Copy copy{.from = source.view(), .to = uploaded.view()};
      uploader.start(std::span(&copy, 1));
    }
    source.fill(round_values(5));
    testing::expect_same_bits(uploaded.values(), round_values(4));
  });
}

TEST_F(CudaUpload, ThrowsCaptureErrorDuringCapture) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<float> uploaded(gpu, kShape);
  Pinned source(gpu);
  source.fill(round_values(1));
  const Uploader::Copy copy{.from = source.view(), .to = uploaded.view()};
  Uploader uploader(gpu);
  try {
    CudaGraph(gpu, [&] { uploader.start(std::span(&copy, 1)); });
    ADD_FAILURE() << "no exception";
  } catch (const CaptureError& error) {
    EXPECT_STREQ(error.what(), "cannot capture an upload");
  }
  uploader.start(std::span(&copy, 1)).wait_on_compute_stream();
  testing::expect_same_bits(uploaded.values(), round_values(1));
}

TEST_F(CudaUpload, HostDeviceUsesStagingMemory) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceContext host = gpu.host();
  EXPECT_EQ(host.kind(), DeviceKind::cpu);
  EXPECT_EQ(host.name(), "cpu");
  EXPECT_EQ(&host.memory(), &gpu.staging());
  EXPECT_TRUE(host == gpu.host());
}

}  // namespace
}  // namespace convoy
