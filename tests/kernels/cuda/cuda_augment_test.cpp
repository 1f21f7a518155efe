// Compares augment() on the GPU with the CPU, bit for bit, for an epoch that is passed by value or is in GPU
// memory.
#include "convoy/kernels/augment.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/kernels/device_array.h"
#include "tests/kernels/rounding.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ComputeType;
using testing::DeviceArray;

constexpr Random kRandom{.seed = 3, .purpose = RandomPurpose::augmentation, .stream = 1};

template <class T>
class CudaAugment : public testing::GpuTest {
 protected:
  /// The images are [M, H, W, C]. The output begins `offset` elements after an aligned address.
  void compare(const kernels::AugmentOptions& options, Shape images_shape, std::int64_t batch,
               std::size_t offset = 0) {
    SCOPED_TRACE(::testing::Message()
                 << batch << " of " << images_shape.text() << " at " << offset << ", padding "
                 << options.crop_padding << ", reflect " << options.reflect << ", flip " << options.flip
                 << ", cutout " << options.cutout << ", minimum area " << options.min_area << ", alternating "
                 << options.alternate_flips << ", down " << options.down << ", mirrored " << options.mirror);
    using C = ComputeType<T>;
    Array<std::uint8_t> images(images_shape);
    for (std::size_t i = 0; i < images.size(); ++i)
      images[i] = static_cast<std::uint8_t>(kRandom.words(i, 12345)[0] >> 24);
    Array<std::int32_t> rows({batch}), ids({batch});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = static_cast<std::int32_t>((i * 5 + 2) % static_cast<std::size_t>(images_shape[0]));
      ids[i] = static_cast<std::int32_t>(1000003 * i);
    }
    const Shape out_shape{batch, images_shape[1], images_shape[2], images_shape[3]};
    Array<C> expected(out_shape);
    CpuStream cpu({.threads = 1});
    kernels::augment(cpu, images.view(), rows.view(), ids.view(), options, kRandom, expected.view());
    Array<T> same_type(out_shape);
    kernels::augment(cpu, images.view(), rows.view(), ids.view(), options, kRandom, same_type.view());

    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<std::uint8_t> gpu_images(gpu, images);
    const DeviceArray<std::int32_t> gpu_rows(gpu, rows), gpu_ids(gpu, ids);
    this->for_each_order([&] {
      const DeviceArray<T> out(gpu, out_shape, offset);
      on(gpu.stream(), [&](auto& stream) {
        kernels::augment(stream, gpu_images.view(), gpu_rows.view(), gpu_ids.view(), options, kRandom,
                         out.view());
      });
      testing::expect_rounded(out.values(), expected);
      testing::expect_same_bits(out.values(), same_type);
    });
  }
};

using CudaAugmentTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaAugment, CudaAugmentTypes);

// Statistics for which the normalization must round.
constexpr kernels::AugmentOptions kNormalized{.mean = {0.4914f, 0.4822f, 0.4465f, 0.3f},
                                              .inverse_std = {4.049f, 4.107f, 3.823f, 0.7f}};

TYPED_TEST(CudaAugment, EqualsTheCpuWithEveryOption) {
  kernels::AugmentOptions options = kNormalized;
  for (const int padding : {0, 1, 4})
    for (const bool reflect : {false, true})
      for (const bool flip : {false, true})
        for (const int cutout : {0, 1, 5}) {
          options.crop_padding = padding;
          options.reflect = reflect;
          options.flip = flip;
          options.cutout = cutout;
          this->compare(options, {9, 5, 7, 3}, 17);
        }
}

TYPED_TEST(CudaAugment, EqualsTheCpuWithStretchedBoxes) {
  kernels::AugmentOptions options = kNormalized;
  for (const int min_area : {1, 8, 100})
    for (const bool flip : {false, true}) {
      options.min_area = min_area;
      options.flip = flip;
      options.cutout = flip ? 3 : 0;
      this->compare(options, {9, 5, 7, 3}, 17);
      this->compare(options, {2, 32, 32, 3}, 5);
      this->compare(options, {2, 9, 1, 1}, 5);
    }
}

TYPED_TEST(CudaAugment, EqualsTheCpuWithViewsAndAlternatingFlips) {
  kernels::AugmentOptions options = kNormalized;
  for (const int shift : {0, 1, -1})
    for (const bool mirror : {false, true}) {
      options.down = options.right = shift;
      options.mirror = mirror;
      options.reflect = true;
      this->compare(options, {9, 5, 7, 3}, 17);
    }
  options.crop_padding = 2;
  options.flip = options.alternate_flips = true;
  this->compare(options, {9, 5, 7, 3}, 17);
}

TYPED_TEST(CudaAugment, EqualsTheCpuWithJitter) {
  kernels::AugmentOptions options = kNormalized;
  options.jitter = 13;
  this->compare(options, {9, 5, 7, 3}, 17);
  this->compare(options, {2, 9, 8, 4}, 5);
  options.saturation = 90;
  options.hue = 50;
  this->compare(options, {9, 5, 7, 3}, 17);
  options.crop_padding = 2;
  options.flip = true;
  options.cutout = 3;
  this->compare(options, {2, 32, 32, 3}, 5);
  options.crop_padding = 0;
  options.min_area = 8;
  this->compare(options, {2, 9, 8, 3}, 5);
}

TYPED_TEST(CudaAugment, EqualsTheCpuWithRandomErasing) {
  kernels::AugmentOptions options = kNormalized;
  options.random_erasing = 0.6f;
  this->compare(options, {9, 5, 7, 3}, 17);
  options.crop_padding = 2;
  options.flip = true;
  options.cutout = 3;
  this->compare(options, {2, 32, 32, 3}, 9);
}

TYPED_TEST(CudaAugment, MixesAsTheCpu) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const Shape shapes[] = {{3, 32, 32, 3}, {5, 7, 5, 3}, {2, 28, 28, 1}, {0, 8, 8, 3}};
  for (const Shape& shape : shapes)
    for (const float divisor : {1.0f, 1.7f, std::numeric_limits<float>::infinity()}) {
      const auto partners = Array<TypeParam>::random(shape, 1), before = Array<TypeParam>::random(shape, 2);
      const Array<float> mixing({kernels::kMixingNumbers}, {divisor, 2, 5, 1, 5, 0.4f});
      Array<TypeParam> expected = before;
      CpuStream cpu({.threads = 1});
      kernels::mix_images(cpu, partners.view(), mixing.view(), expected.view());
      const DeviceArray<TypeParam> gpu_partners(gpu, partners);
      const DeviceArray<float> gpu_mixing(gpu, mixing);
      for (const std::size_t offset : {0, 1})
        this->for_each_order([&] {
          const DeviceArray<TypeParam> images(gpu, before, offset);
          on(gpu.stream(), [&](auto& stream) {
            kernels::mix_images(stream, gpu_partners.view(), gpu_mixing.view(), images.view());
          });
          testing::expect_same_bits(images.values(), expected);
        });
    }
}

TYPED_TEST(CudaAugment, EqualsTheCpuForAllSizes) {
  kernels::AugmentOptions options = kNormalized;
  options.crop_padding = 2;
  options.flip = true;
  options.cutout = 4;
  for (const std::int64_t channels : {1, 2, 3, 4}) this->compare(options, {3, 6, 5, channels}, 11);
  this->compare(options, {2, 32, 32, 3}, 3);  // CIFAR-10: packs, and several blocks per image
  this->compare(options, {2, 27, 37, 3}, 3);  // the same, without packs
  this->compare(options, {2, 28, 28, 1}, 5);  // MNIST: a block that packs do not fill
  this->compare(options, {2, 8, 8, 3}, 5, 1);
  this->compare(options, {1, 3, 3, 1}, 1);
  this->compare(options, {4, 8, 8, 3}, 0);
  for (const std::int64_t width : testing::kTailSizes)
    if (width > 0) this->compare({.flip = true}, {2, 1, width, 1}, 2);
}

TYPED_TEST(CudaAugment, ReadsTheEpochFromMemory) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const Shape shape{7, 6, 5, 3};
  Array<std::uint8_t> images(shape);
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<std::uint8_t>(37 * i);
  const DeviceArray<std::uint8_t> gpu_images(gpu, images);
  const DeviceArray<std::int32_t> ids(gpu, Array<std::int32_t>({7}, {6, 1, 4, 0, 2, 5, 3}));
  const DeviceArray<std::int32_t> epoch(gpu, Array<std::int32_t>({1}, {1}));  // kRandom's stream
  Random by_cell = kRandom;
  by_cell.stream = 0;
  by_cell.cell = epoch.view().template as<std::int32_t>();
  kernels::AugmentOptions options = kNormalized;
  options.crop_padding = 2;
  options.flip = true;
  options.cutout = 3;
  for (const bool alternate : {false, true}) {
    options.alternate_flips = alternate;
    const DeviceArray<TypeParam> expected(gpu, shape), found(gpu, shape);
    on(gpu.stream(), [&](auto& stream) {
      kernels::augment(stream, gpu_images.view(), ids.view(), ids.view(), options, kRandom, expected.view());
      kernels::augment(stream, gpu_images.view(), ids.view(), ids.view(), options, by_cell, found.view());
    });
    testing::expect_same_bits(found.values(), expected.values());
  }
}

}  // namespace
}  // namespace convoy
