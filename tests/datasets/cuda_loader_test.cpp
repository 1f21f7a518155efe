// Batches for a GPU: prepared on the CPU and uploaded, or made by the GPU from resident images. Both are
// equal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "tests/datasets/loader_fixture.h"
#include "tests/testing/support/gpu.h"

namespace convoy::testing {
namespace {

class CudaLoader : public GpuTest {
 protected:
  /// Compares the batches of three loaders: on the CPU, uploaded to the GPU, made by the GPU.
  void compare(data::LoaderOptions options, const data::MixingOptions& mixing = {}) {
    const data::ImageSet set = make_set(43);
    options.transform = random_transform();
    options.transform.mixing = mixing;
    const auto expected = run(set, options, 2);
    options.device = DeviceContext::create_cuda(0);
    EXPECT_EQ(run(set, options, 2), expected);
    options.resident = true;
    for_each_order([&] { EXPECT_EQ(run(set, options, 2), expected); });
  }
};

TEST_F(CudaLoader, BatchesAreThoseOfTheCpu) { compare({.global_batch = 16, .seed = 5}); }
TEST_F(CudaLoader, OfBalancedClasses) {
  std::vector<std::int32_t> labels = make_set(43).labels.to_vector<std::int32_t>();
  for (std::int32_t& label : labels) label = label == 3 ? 0 : 1;
  compare({.global_batch = 16, .balance = Tensor::from(labels, {43}, Device::cpu())}, {.mixup = 0.4});
}
TEST_F(CudaLoader, InOrder) { compare({.global_batch = 7, .shuffle = false}); }
TEST_F(CudaLoader, InMicroBatchesOfOneRankOfThree) {
  compare({.global_batch = 16, .micro_batch = 2, .rank = 2, .world_size = 3});
}
TEST_F(CudaLoader, WithMixup) { compare({.global_batch = 16, .dtype = DType::bf16}, {.mixup = 0.4}); }
TEST_F(CudaLoader, WithCutMixOrMixupOnOneRankOfTwo) {
  compare({.global_batch = 4, .micro_batch = 1, .rank = 1, .world_size = 2}, {.mixup = 1, .cutmix = 1});
}
TEST_F(CudaLoader, WithoutWorkers) { compare({.global_batch = 16, .workers = 0}); }

/// Returns the batches of the CPU in a half-precision type.
std::vector<std::vector<Copy>> rounded(std::vector<std::vector<Copy>> epochs, DType dtype) {
  for (std::vector<Copy>& epoch : epochs)
    for (Copy& batch : epoch)
      for (float& value : batch.images)
        value =
            dtype == DType::f16 ? static_cast<float>(float16(value)) : static_cast<float>(bfloat16(value));
  return epochs;
}

TEST_F(CudaLoader, RoundsToHalfPrecisionOnceOnCpuAndGpu) {
  const data::ImageSet set = make_set(43);
  data::LoaderOptions options{.global_batch = 16, .seed = 5, .transform = random_transform()};
  options.transform.augment.inverse_std = {4.049f, 4.107f, 3.823f};
  const auto exact = run(set, options, 2);
  options.device = DeviceContext::create_cuda(0);
  for (const DType dtype : {DType::f16, DType::bf16}) {
    options.dtype = dtype;
    const auto expected = rounded(exact, dtype);
    EXPECT_NE(expected, exact);
    options.resident = false;
    data::DataLoader loader(set, options);
    EXPECT_EQ(loader.next_step().front().images.dtype(), dtype);
    EXPECT_EQ(run(set, options, 2), expected);
    options.resident = true;
    for_each_order([&] { EXPECT_EQ(run(set, options, 2), expected); });
  }
}

/// Completes a batch of a loader with defer_images by calling make_images().
data::Batch with_images(const data::DataLoader& loader, data::Batch batch, DType dtype,
                        const DeviceContext& gpu) {
  EXPECT_FALSE(batch.images.defined());
  batch.images = Tensor::empty({batch.ids.numel(), kHeight, kWidth, kChannels}, dtype, gpu);
  const Tensor epoch = Tensor::full({1}, static_cast<double>(batch.epoch), DType::i32, gpu);
  loader.make_images(batch.ids, epoch, batch.images);
  return batch;
}

TEST_F(CudaLoader, MakesDeferredImagesOnRequest) {
  const data::ImageSet set = make_set(43);
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  data::LoaderOptions options{.global_batch = 16,
                              .micro_batch = 7,
                              .seed = 5,
                              .transform = random_transform(),
                              .device = gpu,
                              .resident = true};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    options.dtype = dtype;
    options.defer_images = false;
    const auto expected = run(set, options, 2);
    options.defer_images = true;
    for_each_order([&] {
      data::DataLoader loader(set, options);
      for (const std::vector<Copy>& epoch : expected) {
        for (std::size_t next = 0; next < epoch.size();)
          for (const data::Batch& batch : loader.next_step())
            EXPECT_EQ(copy_of(with_images(loader, batch, dtype, gpu)), epoch[next++]);
        EXPECT_TRUE(loader.next_step().empty());
      }
    });
  }
}

TEST_F(CudaLoader, CapturesMakeImagesInAGraph) {
  const data::ImageSet set = make_set(48);
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  data::LoaderOptions options{
      .global_batch = 16, .transform = random_transform(), .device = gpu, .resident = true};
  const auto expected = run(set, options, 3);
  options.defer_images = true;
  for_each_order([&] {
    data::DataLoader loader(set, options);
    const Tensor images = Tensor::zeros({16, kHeight, kWidth, kChannels}, DType::f32, gpu);
    const Tensor ids = Tensor::zeros({16}, DType::i32, gpu);
    const Tensor epoch = Tensor::zeros({1}, DType::i32, gpu);
    CudaGraph graph(gpu, [&] { loader.make_images(ids, epoch, images); });
    EXPECT_EQ(graph.pool_bytes(), 0u);
    for (const std::vector<Copy>& copies : expected) {
      for (const Copy& copy : copies) {
        data::Batch batch = loader.next_step().front();
        ids.copy_from(batch.ids);
        epoch.copy_from(Tensor::full({1}, static_cast<double>(batch.epoch), DType::i32, gpu));
        graph.replay();
        batch.images = images;
        EXPECT_EQ(copy_of(batch), copy);
      }
      EXPECT_TRUE(loader.next_step().empty());
    }
  });
}

TEST_F(CudaLoader, RefusesInvalidArgumentsOfMakeImages) {
  const data::ImageSet set = make_set(24);
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  EXPECT_THROW(data::DataLoader(set, {.device = gpu, .defer_images = true}), UsageError);
  EXPECT_THROW(data::DataLoader(set, {.defer_images = true}), UsageError);
  const Tensor ids = Tensor::zeros({8}, DType::i32, gpu), epoch = Tensor::zeros({1}, DType::i32, gpu);
  const auto images = [&](std::int64_t n, DType dtype, const DeviceContext& device) {
    return Tensor::zeros({n, kHeight, kWidth, kChannels}, dtype, device);
  };
  data::DataLoader whole(set, {.global_batch = 8, .device = gpu, .resident = true});
  EXPECT_THROW(whole.make_images(ids, epoch, images(8, DType::f32, gpu)), UsageError);
  data::DataLoader loader(set, {.global_batch = 8, .device = gpu, .resident = true, .defer_images = true});
  EXPECT_NO_THROW(loader.make_images(ids, epoch, images(8, DType::f32, gpu)));
  EXPECT_THROW(loader.make_images(ids, epoch, images(7, DType::f32, gpu)), UsageError);
  EXPECT_THROW(loader.make_images(ids, epoch, images(8, DType::f16, gpu)), UsageError);
  EXPECT_THROW(loader.make_images(ids, epoch, images(8, DType::f32, Device::cpu())), UsageError);
  EXPECT_THROW(loader.make_images(ids, epoch, ids), UsageError);
  EXPECT_THROW(loader.make_images(ids, ids, images(8, DType::f32, gpu)), UsageError);
  gpu.synchronize();
}

TEST_F(CudaLoader, UsesImagesThatAreOnTheGpuAlready) {
  const data::ImageSet set = make_set(2000);
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  data::LoaderOptions options{.global_batch = 500, .device = gpu, .resident = true};
  const auto expected = run(set, options, 1);
  const Tensor images = set.images.to(gpu);
  const std::size_t before = gpu.memory().stats().in_use;
  options.resident_images = images;
  {
    data::DataLoader loader(set, options);
    EXPECT_EQ(gpu.memory().stats().in_use, before);
    EXPECT_EQ(rest_of_epoch(loader), expected[0]);
  }
  const auto refuses = [&](const Tensor& there, bool resident) {
    options.resident_images = there;
    options.resident = resident;
    EXPECT_THROW(data::DataLoader(set, options), UsageError);
  };
  refuses(images.rows(0, 100), true);
  refuses(set.images, true);
  refuses(set.images.to(DeviceContext::create_cuda(0)), true);  // another Device has another stream
  refuses(images, false);
}

TEST_F(CudaLoader, ResumesAtAnyStep) {
  const data::ImageSet set = make_set(43);
  const data::LoaderOptions options{.global_batch = 8,
                                    .transform = random_transform(),
                                    .device = DeviceContext::create_cuda(0),
                                    .resident = true};
  const auto expected = run(set, options, 3);
  data::DataLoader loader(set, options);
  loader.seek(2, 3);
  const std::vector<Copy> late(expected[2].begin() + 3, expected[2].end());
  EXPECT_EQ(rest_of_epoch(loader), late);
  loader.seek(1, 0);
  EXPECT_EQ(rest_of_epoch(loader), expected[1]);
}

TEST_F(CudaLoader, ABatchOutlivesItsEpoch) {
  const data::ImageSet set = make_set(24);
  data::DataLoader loader(set,
                          {.global_batch = 24, .device = DeviceContext::create_cuda(0), .resident = true});
  const data::Batch first = loader.next_step().front();
  const Copy before = copy_of(first);
  loader.next_step();  // the end of the epoch
  loader.next_step();
  EXPECT_EQ(copy_of(first), before);
}

TEST(ResidentBatches, NeedAGpu) {
  const data::ImageSet set = make_set(4);
  EXPECT_THROW(data::DataLoader(set, {.resident = true}), UsageError);
  EXPECT_THROW(data::DataLoader(set, {.device = Device::cpu(), .resident = true}), UsageError);
}

}  // namespace

// Uploads of batches to a GPU that is behind the host: no early reads, no overwritten data, bounded memory.

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
