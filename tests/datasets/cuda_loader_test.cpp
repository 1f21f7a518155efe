// Batches for a GPU: prepared on the CPU and uploaded, or made by the GPU from resident images. Both are
// equal.
#include <gmock/gmock.h>

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
}  // namespace convoy::testing
