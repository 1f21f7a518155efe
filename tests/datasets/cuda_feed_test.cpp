// Uploads of batches to a GPU that is behind the host: no early reads, no overwritten data, bounded memory.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "tests/datasets/loader_fixture.h"
#include "tests/testing/support/gpu.h"

namespace convoy::testing {
namespace {

/// Lets new allocators reuse freed memory, as in a training. Sanitizer builds disable this for their tests.
class ReusedMemory {
 public:
  ReusedMemory() {
    if (const char* value = std::getenv(kVariable)) before_ = value;
    unsetenv(kVariable);
  }
  ~ReusedMemory() {
    if (before_) setenv(kVariable, before_->c_str(), 1);
  }
  ReusedMemory(const ReusedMemory&) = delete;
  ReusedMemory& operator=(const ReusedMemory&) = delete;

 private:
  static constexpr const char* kVariable = "CONVOY_MEMORY_CACHE";
  std::optional<std::string> before_;
};

/// Gives the workers time. Their state cannot be queried.
bool eventually(const auto& condition) {
  for (int waited_ms = 0; waited_ms < 60'000; ++waited_ms) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

class CudaFeed : public GpuTest {
 protected:
  /// Runs two epochs and copies each batch on the GPU. Only the loader ever waits for the GPU.
  static std::vector<Copy> run_behind(const data::ImageSet& set, const data::LoaderOptions& options) {
    data::DataLoader loader(set, options);
    std::vector<data::Batch> kept;
    for (int epoch = 0; epoch < 2; ++epoch)
      for (std::vector<data::Batch> update = loader.next_step(); !update.empty(); update = loader.next_step())
        for (data::Batch& batch : update) {
          for (Tensor* tensor : {&batch.images, &batch.labels, &batch.ids}) *tensor = tensor->clone();
          kept.push_back(std::move(batch));
        }
    std::vector<Copy> copies;
    for (const data::Batch& batch : kept) copies.push_back(copy_of(batch));
    return copies;
  }

  static std::size_t block(std::size_t bytes) { return CachingAllocator::size_class(bytes); }
  /// Returns the bytes that the allocator reserves for a batch of n samples: f32 images, labels and ids.
  static std::size_t batch_bytes(std::int64_t n) {
    return block(static_cast<std::size_t>(n * kPixels) * sizeof(float)) +
           2 * block(static_cast<std::size_t>(n) * sizeof(std::int32_t));
  }

  const ReusedMemory reused_memory_;
};

TEST_F(CudaFeed, BatchesAreThoseOfTheCpu) {
  const data::ImageSet set = make_set(150);
  data::LoaderOptions options{.global_batch = 16, .seed = 3, .transform = random_transform(), .prefetch = 3};
  for (const int workers : {0, 1, 3})
    for (const std::int64_t micro_batch : {0, 5}) {
      SCOPED_TRACE(std::to_string(workers) + " workers, micro-batches of " + std::to_string(micro_batch));
      options.workers = workers;
      options.micro_batch = micro_batch;
      options.device.reset();
      std::vector<Copy> expected;
      for (const std::vector<Copy>& epoch : run(set, options, 2))
        expected.insert(expected.end(), epoch.begin(), epoch.end());
      for_each_order([&] {
        options.device = DeviceContext::create_cuda(0);
        EXPECT_EQ(run_behind(set, options), expected);
      });
    }
}

TEST_F(CudaFeed, ResidentBatchesMatchTheCpuWhileTheNextEpochIsUploaded) {
  const data::ImageSet set = make_set(60);
  data::LoaderOptions options{.global_batch = 16, .seed = 3, .transform = random_transform()};
  std::vector<Copy> expected;
  for (const std::vector<Copy>& epoch : run(set, options, 2))
    expected.insert(expected.end(), epoch.begin(), epoch.end());
  options.resident = true;
  for_each_order([&] {
    options.device = DeviceContext::create_cuda(0);
    EXPECT_EQ(run_behind(set, options), expected);
  });
}

TEST_F(CudaFeed, UploadsTheNextStepAhead) {
  const data::ImageSet set = make_set(160);
  std::size_t in_use = 0;
  for (int pause_ms = 20; pause_ms < 10'000 && in_use < 2 * batch_bytes(16); pause_ms *= 5) {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    data::DataLoader loader(set, {.global_batch = 16, .workers = 1, .prefetch = 2, .device = gpu});
    ASSERT_TRUE(eventually([&] { return gpu.staging().stats().in_use >= 2 * batch_bytes(16); }));
    // Workers start both batches. The upload of the second shows that they are ready.
    std::this_thread::sleep_for(std::chrono::milliseconds(pause_ms));
    const std::vector<data::Batch> update = loader.next_step();
    in_use = gpu.memory().stats().in_use;
  }
  EXPECT_EQ(in_use, 2 * batch_bytes(16));
}

TEST_F(CudaFeed, DiscardedUploadsDoNotOverwriteReusedMemory) {
  const data::ImageSet set = make_set(160);
  for_each_order([&] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    data::DataLoader loader(set, {.global_batch = 16, .workers = 1, .prefetch = 2, .device = gpu});
    for (int round = 0; round < 5; ++round) {
      loader.seek(0, round);
      EXPECT_TRUE(eventually([&] { return gpu.staging().stats().in_use >= 2 * batch_bytes(16); }));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      { const std::vector<data::Batch> update = loader.next_step(); }
      loader.seek(1, round);  // discards the next batch, whose upload may be incomplete
      std::vector<Tensor> sevens;
      for (int i = 0; i < 3; ++i)
        sevens.push_back(Tensor::full({16, kHeight, kWidth, kChannels}, 7, DType::f32, gpu));
      gpu.synchronize();
      loader.seek(0, 9);  // makes the workers continue at another position
      loader.next_step().front().ids.to_vector<std::int32_t>();
      for (const Tensor& tensor : sevens)
        EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(16 * kPixels, 7.0f));
    }
  });
}

TEST_F(CudaFeed, MemoryIsBoundedWhenTheGpuIsBehind) {
  const data::ImageSet set = make_set(640);
  for_each_order([&] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    constexpr int kPrefetch = 3;
    data::DataLoader loader(set, {.global_batch = 16, .workers = 2, .prefetch = kPrefetch, .device = gpu});
    for (int epoch = 0; epoch < 3; ++epoch)
      for (std::vector<data::Batch> update = loader.next_step(); !update.empty();)
        update = loader.next_step();
    // Prepared or in preparation, uploaded ahead, and received with incomplete uploads.
    EXPECT_LE(gpu.staging().stats().peak_in_use, (kPrefetch + 1 + kPrefetch) * batch_bytes(16));
    // The current batch, the previous one, and the one that is uploaded ahead.
    EXPECT_LE(gpu.memory().stats().peak_in_use, 3 * batch_bytes(16));
    gpu.synchronize();
  });
}

TEST_F(CudaFeed, UploadsAnEmptyBatch) {
  const data::ImageSet set = make_set(5);
  data::DataLoader loader(
      set, {.global_batch = 4, .rank = 3, .world_size = 4, .device = DeviceContext::create_cuda(0)});
  EXPECT_EQ(loader.next_step().front().ids.numel(), 1);
  EXPECT_EQ(loader.next_step().front().images.shape(), (Shape{0, kHeight, kWidth, kChannels}));
}

TEST_F(CudaFeed, CanBeDestroyedAtAnyTime) {
  const data::ImageSet set = make_set(500);
  for_each_order([&] {
    for (int taken = 0; taken < 12; ++taken) {
      const DeviceContext gpu = DeviceContext::create_cuda(0);
      std::vector<data::Batch> kept;
      {
        data::DataLoader loader(set, {.global_batch = 16, .workers = 1 + taken % 3, .device = gpu});
        for (int i = 0; i < taken; ++i) kept = loader.next_step();
        if (taken % 3 == 0) loader.seek(taken);
      }
      for (const data::Batch& batch : kept) EXPECT_EQ(batch.ids.to_vector<std::int32_t>().size(), 16u);
    }
  });
}

}  // namespace
}  // namespace convoy::testing
