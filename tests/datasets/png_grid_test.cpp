// Pictures of several images with their captions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/datasets/formats/png_grid.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

/// Returns how many pixels of a region of an image [H, W, 3] are black.
int black_pixels(const Tensor& image, std::int64_t top, std::int64_t left, std::int64_t height,
                 std::int64_t width) {
  const auto* const pixels = image.view().as<const std::uint8_t>();
  int count = 0;
  for (std::int64_t y = top; y < top + height; ++y)
    for (std::int64_t x = left; x < left + width; ++x)
      count += pixels[(y * image.size(1) + x) * 3 + 1] == 0 ? 1 : 0;
  return count;
}

TEST(PngGrid, HasACaptionBelowEachImage) {
  const TempDirectory directory;
  const auto file = directory.path() / "grid.png";
  const Tensor images = Tensor::full({3, 64, 64, 1}, 1, DType::f32, Device::cpu());
  data::write_png_grid(file, images, 2, {"l", "a name that is far too long", "\xc3\xa9"});
  const Tensor grid = data::read_image(file);
  constexpr std::int64_t kCell = 64 + data::kCaptionHeight + 2;
  ASSERT_EQ(grid.shape(), (Shape{2 * kCell, 2 * 66, 3}));
  EXPECT_EQ(black_pixels(grid, 0, 0, 64, 132), 0) << "the images are white";
  const int l = black_pixels(grid, 64, 0, data::kCaptionHeight, 64);
  EXPECT_GE(l, 5);
  EXPECT_LE(l, 12) << "a line and perhaps a foot";
  EXPECT_GE(black_pixels(grid, 64, 66, data::kCaptionHeight, 64), 60);
  EXPECT_EQ(black_pixels(grid, 64, 130, data::kCaptionHeight, 2), 0)
      << "the text is cut at the end of the image";
  EXPECT_GE(black_pixels(grid, kCell + 64, 0, data::kCaptionHeight, 6), 5) << "one question mark for é";
  EXPECT_EQ(black_pixels(grid, kCell + 64, 8, data::kCaptionHeight, 56), 0);
  EXPECT_THROW(data::write_png_grid(file, images, 2, {"one"}), UsageError);
}

}  // namespace
}  // namespace convoy::testing
