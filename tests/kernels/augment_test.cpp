#include "kernels/augment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>
#include <vector>

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

/// One output pixel at a time, from the header's definition.
template <class T>
T reference(const Array<std::uint8_t>& images, std::int64_t row, std::uint64_t id,
            const AugmentOptions& options, int y, int x, int c) {
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
  const bool flip = options.flip && words[2] >= 0x80000000u;
  int from_y = y - (static_cast<int>(to_below(words[0], range)) - options.crop_padding);
  int from_x =
      (flip ? width - 1 - x : x) - (static_cast<int>(to_below(words[1], range)) - options.crop_padding);
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
  static void check(const AugmentOptions& options, int channels) {
    SCOPED_TRACE(::testing::Message()
                 << "padding " << options.crop_padding << ", reflect " << options.reflect << ", flip "
                 << options.flip << ", cutout " << options.cutout << ", channels " << channels);
    constexpr int kImages = 9, kHeight = 5, kWidth = 7;
    const auto images = random_images({kImages, kHeight, kWidth, channels});
    constexpr std::int64_t kBatch = 401;  // two pieces with three channels, three with four
    Array<std::int32_t> rows({kBatch}), ids({kBatch});
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] = static_cast<std::int32_t>((i * 5 + 2) % kImages);
      ids[i] = static_cast<std::int32_t>(1000003 * i);
    }
    Array<T> out({kBatch, kHeight, kWidth, channels}), same(out.shape());
    CpuStream one({.threads = 1}), three({.threads = 3});
    augment(one, images.view(), rows.view(), ids.view(), options, kRandom, out.view());
    augment(three, images.view(), rows.view(), ids.view(), options, kRandom, same.view());
    testing::expect_same_bits(out, same);
    std::size_t i = 0;
    for (std::size_t n = 0; n < rows.size(); ++n)
      for (int y = 0; y < kHeight; ++y)
        for (int x = 0; x < kWidth; ++x)
          for (int c = 0; c < channels; ++c)
            ASSERT_EQ(out[i++],
                      reference<T>(images, rows[n], static_cast<std::uint64_t>(ids[n]), options, y, x, c))
                << "sample " << n << " at " << y << ", " << x << ", " << c;
  }
};

using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Augment, Types);

TYPED_TEST(Augment, FollowsItsDefinition) {
  AugmentOptions options{.mean = {0.5f, 0.4f, 0.25f, 0.125f}, .inverse_std = {2, 4, 5, 3}};
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

/// Every value of a pixel, in every channel, with and without draws.
template <class Half>
void expect_rounded_once() {
  Array<std::uint8_t> images({2, 16, 16, 4});
  for (std::size_t i = 0; i < images.size(); ++i) images[i] = static_cast<std::uint8_t>(i / 4 + 64 * (i % 4));
  AugmentOptions options{.mean = {0.4914f, 0.4822f, 0.4465f, 0.3f},
                         .inverse_std = {4.049f, 4.107f, 3.823f, 0.7f}};
  CpuStream stream({.threads = 2});
  for (const int padding : {0, 2}) {
    options.crop_padding = options.cutout = padding;
    const Array<std::int32_t> rows({3}, {1, 0, 1}), ids({3}, {4, 5, 6});
    Array<float> expected({3, 16, 16, 4});
    Array<Half> found(expected.shape());
    augment(stream, images.view(), rows.view(), ids.view(), options, kRandom, expected.view());
    augment(stream, images.view(), rows.view(), ids.view(), options, kRandom, found.view());
    for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i].bits, Half(expected[i]).bits) << i;
  }
}
TEST(Augmentation, RoundsToAHalfOnce) {
  expect_rounded_once<float16>();
  expect_rounded_once<bfloat16>();
}

TEST(Augmentation, ReadsTheEpochFromItsCell) {
  const auto images = random_images({5, 8, 8, 3});
  const Array<std::int32_t> ids({5}, {3, 1, 4, 0, 2});
  const AugmentOptions options{.crop_padding = 2, .flip = true, .cutout = 3};
  const std::int32_t epoch = 6;
  Array<float> expected({5, 8, 8, 3}), found(expected.shape());
  CpuStream stream({.threads = 2});
  Random random{.seed = 3, .purpose = RandomPurpose::augmentation, .stream = 6};
  augment(stream, images.view(), ids.view(), ids.view(), options, random, expected.view());
  random.stream = 0;
  random.cell = &epoch;
  augment(stream, images.view(), ids.view(), ids.view(), options, random, found.view());
  testing::expect_same_bits(found, expected);
}

TEST(Augmentation, OfNothingIsTheImage) {
  const auto images = random_images({3, 4, 4, 3});
  const Array<std::int32_t> rows({3}, {2, 0, 1});
  Array<double> out({3, 4, 4, 3});
  CpuStream stream({.threads = 1});
  augment(stream, images.view(), rows.view(), rows.view(), {}, kRandom, out.view());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t image = static_cast<std::size_t>(rows[i / 48]);
    ASSERT_EQ(out[i], images[image * 48 + i % 48] / 255.0);
  }
}

TEST(Augmentation, TakesAnEmptyBatch) {
  const auto images = random_images({3, 4, 4, 3});
  const Array<std::int32_t> none({0});
  Array<float> out({0, 4, 4, 3});
  CpuStream stream({.threads = 3});
  augment(stream, images.view(), none.view(), none.view(), {.crop_padding = 1}, kRandom, out.view());
}

TEST(Augmentation, DrawsEveryShiftAndBothDirections) {
  // One bright pixel in the middle shows where the image went.
  constexpr int kSide = 9;
  Array<std::uint8_t> images({1, kSide, kSide, 1});
  images[(kSide / 2) * kSide + kSide / 2] = 255;
  const Array<std::int32_t> row({1}, {0});
  CpuStream stream({.threads = 1});
  std::set<std::size_t> places;
  for (std::int32_t id = 0; id < 400; ++id) {
    const Array<std::int32_t> ids({1}, {id});
    Array<float> out({1, kSide, kSide, 1});
    augment(stream, images.view(), row.view(), ids.view(), {.crop_padding = 2, .flip = true}, kRandom,
            out.view());
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i] == 1) places.insert(i);
  }
  EXPECT_EQ(places.size(), 25u);
}

TEST(Augmentation, RunsInManyThreadsAtOnce) {
  const auto images = random_images({50, 8, 8, 3});
  const AugmentOptions options{.crop_padding = 2, .flip = true, .cutout = 3};
  Array<std::int32_t> rows({50});
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>(i);
  std::vector<Array<float>> outs(4, Array<float>({50, 8, 8, 3}));
  std::vector<std::thread> threads;
  for (Array<float>& out : outs)
    threads.emplace_back([&] {
      CpuStream stream({.threads = 1});
      for (int i = 0; i < 20; ++i)
        augment(stream, images.view(), rows.view(), rows.view(), options, kRandom, out.view());
    });
  for (std::thread& thread : threads) thread.join();
  for (const Array<float>& out : outs) testing::expect_same_bits(out, outs[0]);
}

}  // namespace
}  // namespace convoy
