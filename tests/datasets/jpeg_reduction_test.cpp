// Tests of JPEG images that libjpeg-turbo reduces while it decodes them, because they are resized afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/transforms/resize.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/image_files.h"

namespace convoy {
namespace {

using ::testing::HasSubstr;
using testing::Picture;

TEST(JpegReduction, IsTheLargestThatLeavesEnoughOfTheShortSide) {
  struct Row {
    data::ImageSize size;
    std::int64_t side;
    int reduction;
  };
  for (const Row& row : {Row{{500, 375}, 224, 1}, Row{{447, 600}, 224, 1}, Row{{600, 447}, 224, 1},
                         Row{{448, 600}, 224, 2}, Row{{895, 895}, 224, 2}, Row{{896, 4000}, 224, 4},
                         Row{{4000, 1791}, 224, 4}, Row{{1792, 1792}, 224, 8}, Row{{60000, 1000}, 10, 8},
                         Row{{500, 375}, 64, 4}, Row{{500, 375}, 0, 1}, Row{{1, 1}, 1, 1}, Row{{2, 2}, 1, 2}})
    EXPECT_EQ(data::jpeg_reduction(row.size, row.side), row.reduction)
        << row.size.width << " x " << row.size.height << " to " << row.side;
}

/// Tests of builds that reduce images.
class ReducedJpeg : public ::testing::Test {
 protected:
  void SetUp() override {
    if (data::jpeg_decoder_text() == "stb_image") GTEST_SKIP() << "this build has no libjpeg-turbo";
  }
};

TEST_F(ReducedJpeg, RoundsItsSidesUp) {
  const std::string bytes = testing::jpeg(Picture::plain(61, 45, 3, 90));
  for (const auto& [side, width, height] :
       {std::array{23, 61, 45}, std::array{22, 31, 23}, std::array{11, 16, 12}, std::array{5, 8, 6},
        std::array{1, 8, 6}}) {
    const data::Pixels pixels = data::decode_rgb(bytes, "in memory", side);
    EXPECT_EQ(pixels.size.width, width) << side;
    EXPECT_EQ(pixels.size.height, height) << side;
    EXPECT_EQ(pixels.rgb, std::vector<std::uint8_t>(static_cast<std::size_t>(3 * width * height), 90));
    EXPECT_EQ(pixels.is_reduced, side < 23);
  }
  EXPECT_FALSE(data::decode_rgb(testing::png(Picture::plain(61, 45, 3, 90)), "in memory", 5).is_reduced);
}

/// Returns an image whose first channel rises from left to right, and the second one from top to bottom, by 200.
Picture slopes(int width, int height) {
  Picture picture = Picture::plain(width, height, 3, 100);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x) {
      std::uint8_t* const pixel = &picture.pixels[static_cast<std::size_t>(3 * (y * width + x))];
      pixel[0] = static_cast<std::uint8_t>(std::lround(20 + 200.0 * x / width));
      pixel[1] = static_cast<std::uint8_t>(std::lround(20 + 200.0 * y / height));
    }
  return picture;
}

TEST_F(ReducedJpeg, HasThePixelsOfTheWholeImageAfterResizing) {
  constexpr int kSize = 32;  // pixels of the result
  for (const int width : {64, 65, 127, 128, 129, 190, 255, 256, 257, 300}) {
    const int height = width + width / 3;
    const std::string bytes = testing::jpeg(slopes(width, height), 100);
    const data::Pixels whole = data::decode_rgb(bytes, "in memory");
    std::vector<std::uint8_t> expected(3 * kSize * kSize);
    data::resize_to_square({whole.rgb.data(), height, width, 3}, kSize, expected.data());
    const auto found = data::decode_image(bytes, "in memory", kSize).to_vector<std::uint8_t>();
    // Both ways keep a linear slope, and differ in the positions of their pixels. A reduced side is rounded up by a
    // part of a pixel, which stretches the image by at most that part. At the border, the wide filter of the whole
    // image loses an eighth of its weight, which moves its mean by 0.1 pixels. Rounding of three channels: 4.
    const int reduction = data::jpeg_reduction({width, height}, kSize);
    ASSERT_GE(reduction, 2);
    const auto stretch = [reduction](int side) {
      return std::ceil(1.0 * side / reduction) - 1.0 * side / reduction;
    };
    const double moved = std::max(stretch(width), stretch(height)) + 0.1;  // pixels of the result, at most
    const double bound = moved * 200 / kSize + 4;
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(found[i], expected[i], bound) << "value " << i << ", width " << width;
  }
}

TEST_F(ReducedJpeg, IsRefusedIfImageDataEndEarly) {
  const std::string whole = testing::jpeg(Picture::ramp(40, 40, 3));
  const std::size_t data = whole.find("\xFF\xDA") + 14;
  for (const int side : {5, 10, 20})
    EXPECT_THAT(testing::message_of<DataError>(
                    [&] { data::decode_rgb(whole.substr(0, data + 8) + "\xFF\xD9", "bad.file", side); }),
                HasSubstr("premature end of data segment"));
}

}  // namespace
}  // namespace convoy
