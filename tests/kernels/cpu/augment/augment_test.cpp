// Tests of augment() on the CPU.
#include "convoy/kernels/augment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "convoy/kernels/shared/augment_choices.h"
#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;

constexpr Random kRandom{.seed = 3, .purpose = RandomPurpose::augmentation, .stream = 1};

Array<std::uint8_t> random_images(Shape shape) {
  Array<std::uint8_t> images(shape);
  for (std::size_t i = 0; i < images.size(); ++i)
    images[i] = static_cast<std::uint8_t>(kRandom.words(i, 12345)[0] >> 24);
  return images;
}

/// Returns one output element, computed from the definition in kernels/augment.h.
template <class T>
T reference(const Array<std::uint8_t>& images, std::int64_t row, std::uint64_t id,
            const kernels::AugmentOptions& options, int y, int x, int c) {
  const int height = static_cast<int>(images.shape()[1]);
  const int width = static_cast<int>(images.shape()[2]);
  const auto channel = static_cast<std::size_t>(c);
  const auto words = kRandom.words(id);
  const auto centre = kRandom.words(id, 1);
  const int top =
      static_cast<int>(to_below(centre[0], static_cast<std::uint32_t>(height))) - options.cutout / 2;
  const int left =
      static_cast<int>(to_below(centre[1], static_cast<std::uint32_t>(width))) - options.cutout / 2;
  if (top <= y && y < top + options.cutout && left <= x && x < left + options.cutout) return 0;
  const auto range = static_cast<std::uint32_t>(2 * options.crop_padding + 1);
  const Random first_epoch{.seed = kRandom.seed, .purpose = kRandom.purpose, .stream = 0};
  const bool alternating = first_epoch.words(id)[2] < 0x80000000u;  // kRandom is of epoch 1
  bool flip = options.flip && (options.alternate_flips ? alternating : words[2] >= 0x80000000u);
  if (options.mirror) flip = !flip;
  int from_y = y - (static_cast<int>(to_below(words[0], range)) - options.crop_padding) - options.down;
  int from_x = (flip ? width - 1 - x : x) -
               (static_cast<int>(to_below(words[1], range)) - options.crop_padding) - options.right;
  if (options.reflect) {
    from_y = height - 1 - std::abs(height - 1 - std::abs(from_y));
    from_x = width - 1 - std::abs(width - 1 - std::abs(from_x));
  }
  const bool inside = 0 <= from_y && from_y < height && 0 <= from_x && from_x < width;
  const std::int64_t index = ((row * height + from_y) * width + from_x) * images.shape()[3] + c;
  const T pixel = inside ? images[static_cast<std::size_t>(index)] : 0;
  return (pixel / 255 - T{options.mean[channel]}) * T{options.inverse_std[channel]};
}

template <class T>
class Augment : public ::testing::Test {
 protected:
  static void check(const kernels::AugmentOptions& options, int channels, int width = 7) {
    SCOPED_TRACE(::testing::Message() << "padding " << options.crop_padding << ", reflect " << options.reflect
                                      << ", flip " << options.flip << ", cutout " << options.cutout
                                      << ", channels " << channels << ", width " << width);
    constexpr int kImages = 9, kHeight = 5;
    const auto images = random_images({kImages, kHeight, width, channels});
    constexpr std::int64_t kBatch = 401;  // two pieces with three channels, three pieces with four
    Array<std::int32_t> rows({kBatch}), ids({kBatch});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = static_cast<std::int32_t>((i * 5 + 2) % kImages);
      ids[i] = static_cast<std::int32_t>(1000003 * i);
    }
    Array<T> out({kBatch, kHeight, width, channels}), same(out.shape());
    CpuStream one({.threads = 1}), three({.threads = 3});
    kernels::augment(one, images.view(), rows.view(), ids.view(), options, kRandom, out.view());
    kernels::augment(three, images.view(), rows.view(), ids.view(), options, kRandom, same.view());
    testing::expect_same_bits(out, same);
    std::size_t i = 0;
    for (std::size_t n = 0; n < rows.size(); ++n)
      for (int y = 0; y < kHeight; ++y)
        for (int x = 0; x < width; ++x)
          for (int c = 0; c < channels; ++c)
            ASSERT_EQ(out[i++],
                      reference<T>(images, rows[n], static_cast<std::uint64_t>(ids[n]), options, y, x, c))
                << "sample " << n << " at " << y << ", " << x << ", " << c;
  }
};

using AugmentTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Augment, AugmentTypes);

TYPED_TEST(Augment, FollowsItsDefinition) {
  kernels::AugmentOptions options{.mean = {0.5f, 0.4f, 0.25f, 0.125f}, .inverse_std = {2, 4, 5, 3}};
  for (const int padding : {0, 1, 4})
    for (const bool reflect : {false, true})
      for (const bool flip : {false, true})
        for (const int cutout : {0, 1, 2, 5}) {
          options.crop_padding = padding;
          options.reflect = reflect;
          options.flip = flip;
          options.cutout = cutout;
          this->check(options, 3);
        }
  for (const int channels : {1, 2, 4}) this->check(options, channels);
}

TYPED_TEST(Augment, ShiftsAndMirrorsEachImageEqually) {
  for (const bool reflect : {false, true})
    for (const bool mirror : {false, true})
      for (const int shift : {-3, 0, 1}) {
        SCOPED_TRACE(::testing::Message() << "mirror " << mirror << ", shift " << shift);
        const kernels::AugmentOptions view{.reflect = reflect,
                                           .down = shift,
                                           .right = -shift,
                                           .mirror = mirror,
                                           .inverse_std = {2, 4, 5, 3}};
        this->check(view, 3);
        kernels::AugmentOptions both = view;  // in addition to random choices
        both.crop_padding = 1;
        both.flip = true;
        this->check(both, 3);
      }
}

TYPED_TEST(Augment, AlternatesFlips) {
  this->check({.flip = true, .alternate_flips = true}, 3);
  this->check({.crop_padding = 2, .reflect = true, .flip = true, .alternate_flips = true}, 3);
  this->check({.alternate_flips = true}, 3);  // without flip, no effect
}

// Shifts by up to the width less one: only one column of the image remains visible.
TYPED_TEST(Augment, SupportsShiftsUpToTheWidth) {
  for (const bool reflect : {false, true})
    for (const int channels : {1, 2, 3, 4}) {
      this->check({.crop_padding = 4, .reflect = reflect, .flip = true}, channels, 5);
      this->check({.crop_padding = 1, .reflect = reflect, .flip = true}, channels, 2);
    }
}

TEST(StretchedBoxes, HaveExpectedAreaShapeAndPosition) {
  constexpr int kHeight = 60, kWidth = 80, kMin = 25;
  int upright = 0, at_the_corner = 0, small = 0;
  constexpr int kDraws = 4000;
  for (std::uint64_t id = 0; id < kDraws; ++id) {
    const kernels::ImageBox box = kernels::choose_box(kMin, kRandom, id, kHeight, kWidth);
    ASSERT_GE(box.top, 0);
    ASSERT_GE(box.left, 0);
    ASSERT_LE(box.top + box.height, kHeight);
    ASSERT_LE(box.left + box.width, kWidth);
    const double area = static_cast<double>(box.height * box.width) / (kHeight * kWidth);
    const double ratio = static_cast<double>(box.width) / box.height;
    ASSERT_GE(area, 0.25 * 0.96);  // each side has at least 30 pixels and is rounded by up to half a pixel
    if (box.height < kHeight && box.width < kWidth) {
      ASSERT_GE(ratio, 0.75 * 0.96);
      ASSERT_LE(ratio, 1.34 * 1.04);
    }
    at_the_corner += box.top + box.height == kHeight && box.left + box.width == kWidth ? 1 : 0;
    if (area >= 0.5) continue;  // the longer side may be limited by the image
    ++small;
    upright += box.height > box.width ? 1 : 0;
  }
  EXPECT_NEAR(small, kDraws / 3, 200);  // areas are uniform in [1/4, 1]
  EXPECT_NEAR(upright, small / 2, 100);
  EXPECT_GT(at_the_corner, 0);
}

TEST(StretchedBoxes, FitImagesOfAllSizes) {
  for (const auto& [height, width] : {std::pair{1, 1}, {1, 9}, {2, 3}, {1024, 2}})
    for (std::uint64_t id = 0; id < 200; ++id) {
      const kernels::ImageBox box = kernels::choose_box(1, kRandom, id, height, width);
      ASSERT_TRUE(box.height >= 1 && box.width >= 1 && box.top + box.height <= height &&
                  box.left + box.width <= width);
    }
}

// If the pixel values are linear in the coordinates, interpolation gives the value at the interpolated
// coordinates.
TEST(StretchedBoxes, AreInterpolated) {
  constexpr int kHeight = 40, kWidth = 56, kBatch = 60;
  Array<std::uint8_t> images({1, kHeight, kWidth, 2});
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x) {
      const auto at = static_cast<std::size_t>(2 * (y * kWidth + x));
      images[at] = static_cast<std::uint8_t>(6 * y);
      images[at + 1] = static_cast<std::uint8_t>(4 * x);
    }
  Array<std::int32_t> rows({kBatch}), ids({kBatch});
  for (std::size_t n = 0; n < kBatch; ++n) {
    rows[n] = 0;
    ids[n] = static_cast<std::int32_t>(977 * n);
  }
  Array<double> out({kBatch, kHeight, kWidth, 2});
  CpuStream stream({.threads = 2});
  kernels::augment(stream, images.view(), rows.view(), ids.view(), {.min_area = 8, .flip = true}, kRandom,
                   out.view());
  for (std::size_t n = 0; n < kBatch; ++n) {
    const auto id = static_cast<std::uint64_t>(ids[n]);
    const kernels::ImageBox box = kernels::choose_box(8, kRandom, id, kHeight, kWidth);
    const bool flip = kRandom.words(id)[2] >= 0x80000000u;
    for (int y = 0; y < kHeight; ++y)
      for (int x = 0; x < kWidth; ++x) {
        const auto place = [](int i, int size, int begin, int length) {
          return begin + std::clamp((i + 0.5) * length / size - 0.5, 0.0, length - 1.0);
        };
        const auto at =
            2 * ((n * kHeight + static_cast<std::size_t>(y)) * kWidth + static_cast<std::size_t>(x));
        const double tolerance =
            0.5 + 6.0 / 256;  // values are rounded to a byte, coordinates to 1/256 of a pixel
        ASSERT_NEAR(255 * out[at], 6 * place(y, kHeight, box.top, box.height), tolerance);
        ASSERT_NEAR(255 * out[at + 1], 4 * place(flip ? kWidth - 1 - x : x, kWidth, box.left, box.width),
                    tolerance);
      }
  }
}

/// Tests every pixel value in every channel, with and without augmentation.
template <class Half>
void expect_rounded_once() {
  Array<std::uint8_t> images({2, 16, 16, 4});
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<std::uint8_t>(i / 4 + 64 * (i % 4));
  kernels::AugmentOptions options{.mean = {0.4914f, 0.4822f, 0.4465f, 0.3f},
                                  .inverse_std = {4.049f, 4.107f, 3.823f, 0.7f}};
  CpuStream stream({.threads = 2});
  for (const int padding : {0, 2}) {
    options.crop_padding = options.cutout = padding;
    const Array<std::int32_t> rows({3}, {1, 0, 1}), ids({3}, {4, 5, 6});
    Array<float> expected({3, 16, 16, 4});
    Array<Half> found(expected.shape());
    kernels::augment(stream, images.view(), rows.view(), ids.view(), options, kRandom, expected.view());
    kernels::augment(stream, images.view(), rows.view(), ids.view(), options, kRandom, found.view());
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i].bits, Half(expected[i]).bits) << i;
  }
}
TEST(Augmentation, RoundsToHalfPrecisionOnce) {
  expect_rounded_once<float16>();
  expect_rounded_once<bfloat16>();
}

TEST(Augmentation, ReadsTheEpochFromMemory) {
  const auto images = random_images({5, 8, 8, 3});
  const Array<std::int32_t> ids({5}, {3, 1, 4, 0, 2});
  const kernels::AugmentOptions options{.crop_padding = 2, .flip = true, .cutout = 3};
  const std::int32_t epoch = 6;
  Array<float> expected({5, 8, 8, 3}), found(expected.shape());
  CpuStream stream({.threads = 2});
  Random random{.seed = 3, .purpose = RandomPurpose::augmentation, .stream = 6};
  kernels::augment(stream, images.view(), ids.view(), ids.view(), options, random, expected.view());
  random.stream = 0;
  random.cell = &epoch;
  kernels::augment(stream, images.view(), ids.view(), ids.view(), options, random, found.view());
  testing::expect_same_bits(found, expected);
}

TEST(Augmentation, WithoutOptionsReturnsTheImage) {
  const auto images = random_images({3, 4, 4, 3});
  const Array<std::int32_t> rows({3}, {2, 0, 1});
  Array<double> out({3, 4, 4, 3});
  CpuStream stream({.threads = 1});
  kernels::augment(stream, images.view(), rows.view(), rows.view(), {}, kRandom, out.view());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t image = static_cast<std::size_t>(rows[i / 48]);
    ASSERT_EQ(out[i], images[image * 48 + i % 48] / 255.0);
  }
}

TEST(Augmentation, AcceptsEmptyBatch) {
  const auto images = random_images({3, 4, 4, 3});
  const Array<std::int32_t> none({0});
  Array<float> out({0, 4, 4, 3});
  CpuStream stream({.threads = 3});
  kernels::augment(stream, images.view(), none.view(), none.view(), {.crop_padding = 1}, kRandom, out.view());
}

TEST(Augmentation, DrawsEveryShiftAndBothDirections) {
  // One bright pixel in the middle shows how the image was shifted.
  constexpr int kSide = 9;
  Array<std::uint8_t> images({1, kSide, kSide, 1});
  images[(kSide / 2) * kSide + kSide / 2] = 255;
  const Array<std::int32_t> row({1}, {0});
  CpuStream stream({.threads = 1});
  std::set<std::size_t> places;
  for (std::int32_t id = 0; id < 400; ++id) {
    const Array<std::int32_t> ids({1}, {id});
    Array<float> out({1, kSide, kSide, 1});
    kernels::augment(stream, images.view(), row.view(), ids.view(), {.crop_padding = 2, .flip = true},
                     kRandom, out.view());
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i] == 1) places.insert(i);
  }
  EXPECT_EQ(places.size(), 25u);
}

TEST(Augmentation, AlternatingFlipsShowBothVariantsInTwoEpochs) {
  const Array<std::uint8_t> images({1, 1, 2, 1}, {0, 255});
  const Array<std::int32_t> row({1}, {0});
  CpuStream stream({.threads = 1});
  const auto first_pixel = [&](std::int32_t id, std::uint32_t epoch) {
    const Array<std::int32_t> ids({1}, {id});
    Array<float> out({1, 1, 2, 1});
    kernels::augment(stream, images.view(), row.view(), ids.view(), {.flip = true, .alternate_flips = true},
                     {.seed = 3, .purpose = RandomPurpose::augmentation, .stream = epoch}, out.view());
    return out[0];
  };
  int flipped = 0;
  for (std::int32_t id = 0; id < 400; ++id) {
    flipped += first_pixel(id, 0) == 1 ? 1 : 0;
    for (std::uint32_t epoch = 0; epoch < 3; ++epoch)
      EXPECT_EQ(first_pixel(id, epoch) + first_pixel(id, epoch + 1), 1) << "sample " << id;
  }
  EXPECT_NEAR(flipped, 200, 50);  // five standard deviations of 400 flips of a coin
}

// (x + b) c, with b and c from the definition in kernels/augment.h.
TEST(Augmentation, JittersBrightnessAndContrastOfEachSample) {
  constexpr std::size_t kBatch = 300;
  const Array<std::uint8_t> images({1, 1, 2, 3}, {0, 10, 90, 200, 128, 255});
  Array<std::int32_t> rows({kBatch}), ids({kBatch});
  for (std::size_t i = 0; i < kBatch; ++i) ids[i] = static_cast<std::int32_t>(1000003 * i);
  const kernels::AugmentOptions plain{.mean = {0.5f, 0.4f, 0.25f}, .inverse_std = {4.0f, 3.5f, 5.0f}};
  kernels::AugmentOptions options = plain;
  options.jitter = 20;
  CpuStream stream({.threads = 2});
  Array<double> x({kBatch, 1, 2, 3}), y(x.shape());
  kernels::augment(stream, images.view(), rows.view(), ids.view(), plain, kRandom, x.view());
  kernels::augment(stream, images.view(), rows.view(), ids.view(), options, kRandom, y.view());
  double minimum = 1, maximum = -1;
  for (std::size_t n = 0; n < kBatch; ++n) {
    const auto words = kRandom.words(static_cast<std::uint64_t>(ids[n]), 4);
    const auto uniform = [](std::uint32_t word) {  // in [-1, 1)
      return static_cast<double>(static_cast<std::int32_t>(word) >> 8) / (1 << 23);
    };
    const double b = 0.2 * uniform(words[0]), c = 1 + 0.2 * uniform(words[1]);
    minimum = std::min(minimum, b);
    maximum = std::max(maximum, b);
    for (std::size_t i = 6 * n; i < 6 * n + 6; ++i)
      ASSERT_NEAR(y[i], (x[i] + b) * c, 1e-14) << "sample " << n;
  }
  EXPECT_LT(minimum, -0.19);
  EXPECT_GT(maximum, 0.19);
}

// The box follows the definition in kernels/augment.h; other pixels are those without erasing.
TEST(Augmentation, ErasesARandomBoxOfSomeSamples) {
  constexpr std::size_t kBatch = 2000, kSide = 32;
  const Array<std::uint8_t> images({1, kSide, kSide, 1}, std::uint8_t{200});
  Array<std::int32_t> rows({kBatch}), ids({kBatch});
  for (std::size_t i = 0; i < kBatch; ++i) ids[i] = static_cast<std::int32_t>(1000003 * i);
  const kernels::AugmentOptions options{.random_erasing = 0.25f, .mean = {0.5f}};
  CpuStream stream({.threads = 2});
  Array<double> out({kBatch, kSide, kSide, 1});
  kernels::augment(stream, images.view(), rows.view(), ids.view(), options, kRandom, out.view());
  double erased = 0, area = 0, min_ratio = 10, max_ratio = 0;
  for (std::size_t n = 0; n < kBatch; ++n) {
    std::size_t top = kSide, bottom = 0, left = kSide, right = 0, zeros = 0;
    for (std::size_t i = 0; i < kSide * kSide; ++i) {
      if (out[n * kSide * kSide + i] != 0) continue;
      ++zeros;
      top = std::min(top, i / kSide);
      bottom = std::max(bottom, i / kSide + 1);
      left = std::min(left, i % kSide);
      right = std::max(right, i % kSide + 1);
    }
    if (zeros == 0) continue;
    ASSERT_EQ(zeros, (bottom - top) * (right - left)) << "not one box in sample " << n;
    const double fraction = static_cast<double>(zeros) / (kSide * kSide);
    const double ratio = static_cast<double>(bottom - top) / static_cast<double>(right - left);
    EXPECT_GT(fraction, 0.012) << "2%, with sides that are rounded by at most half a pixel";
    EXPECT_LT(fraction, 0.36);
    erased += 1;
    area += fraction;
    min_ratio = std::min(min_ratio, ratio);
    max_ratio = std::max(max_ratio, ratio);
  }
  EXPECT_NEAR(erased, 500, 97);  // five standard deviations of 2000 draws
  // The mean of 2% to 33%; boxes that do not fit are drawn again, which few are.
  EXPECT_NEAR(area / erased, 0.175, 5 * 0.09 / std::sqrt(erased) + 0.005);
  EXPECT_LT(min_ratio, 0.5);
  EXPECT_GT(max_ratio, 2.8);
}

TEST(Augmentation, NeverErasesAWholeSide) {
  const Array<std::uint8_t> images({1, 1, 9, 1}, std::uint8_t{200});
  Array<std::int32_t> rows({50});
  Array<float> out({50, 1, 9, 1});
  CpuStream stream({.threads = 1});
  kernels::augment(stream, images.view(), rows.view(), rows.view(), {.random_erasing = 1}, kRandom,
                   out.view());
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NE(out[i], 0);
}

TYPED_TEST(Augment, MixesTheBoxWithThePartners) {
  const Shape shape{7, 5, 6, 3};
  const auto partners = Array<TypeParam>::random(shape, 1), before = Array<TypeParam>::random(shape, 2);
  CpuStream stream({.threads = 2});
  for (const float divisor : {1.0f, 1.6f, std::numeric_limits<float>::infinity()}) {
    const Array<float> mixing({kernels::kMixingNumbers}, {divisor, 1, 4, 2, 6, 0.3f});
    Array<TypeParam> images = before;
    kernels::mix_images(stream, partners.view(), mixing.view(), images.view());
    std::size_t i = 0;
    for (int n = 0; n < 7; ++n)
      for (int y = 0; y < 5; ++y)
        for (int x = 0; x < 6; ++x)
          for (int c = 0; c < 3; ++c, ++i) {
            const bool inside = 1 <= y && y < 4 && 2 <= x;
            const TypeParam mixed = before[i] + (partners[i] - before[i]) / TypeParam{divisor};
            ASSERT_EQ(images[i], !inside ? before[i] : divisor == 1 ? partners[i] : mixed) << i;
          }
  }
}

TEST(Augmentation, RoundsJitteredPixelsToHalfPrecisionOnce) {
  const auto images = random_images({3, 8, 8, 3});
  const Array<std::int32_t> rows({3}, {2, 0, 1}), ids({3}, {7, 8, 9});
  const kernels::AugmentOptions options{.flip = true, .cutout = 3, .jitter = 30, .mean = {0.4f, 0.5f, 0.6f}};
  CpuStream stream({.threads = 1});
  Array<float> expected({3, 8, 8, 3});
  Array<bfloat16> found(expected.shape());
  kernels::augment(stream, images.view(), rows.view(), ids.view(), options, kRandom, expected.view());
  kernels::augment(stream, images.view(), rows.view(), ids.view(), options, kRandom, found.view());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i].bits, bfloat16(expected[i]).bits) << i;
}

TEST(Augmentation, SupportsConcurrentStreams) {
  const auto images = random_images({50, 8, 8, 3});
  const kernels::AugmentOptions options{.crop_padding = 2, .flip = true, .cutout = 3};
  Array<std::int32_t> rows({50});
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>(i);
  std::vector<Array<float>> outs(4, Array<float>({50, 8, 8, 3}));
  std::vector<std::thread> threads;
  for (Array<float>& out : outs)
    threads.emplace_back([&] {
      CpuStream stream({.threads = 1});
      for (int i = 0; i < 20; ++i)
        kernels::augment(stream, images.view(), rows.view(), rows.view(), options, kRandom, out.view());
    });
  for (std::thread& thread : threads) thread.join();
  for (const Array<float>& out : outs) testing::expect_same_bits(out, outs[0]);
}

}  // namespace
}  // namespace convoy
