// Tests of the orientation of photographs, and of WebP and TIFF files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/datasets/formats/readers.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/image_files.h"

namespace convoy {
namespace {

using ::testing::HasSubstr;
using testing::message_of;
using testing::Picture;

data::Pixels decode(const std::string& bytes, std::int64_t side = 0) {
  return data::decode_rgb(bytes, "in memory", side);
}

std::string refusal(const std::string& bytes) {
  return message_of<DataError>([&] { decode(bytes); });
}

// The rows of the upright image for each orientation of the stored rows "abc" and "def", as EXIF defines them:
// value 6, for example, says that the first stored row is the right side, and the first column the top.
constexpr const char* kUpright[] = {"abc/def",  "cba/fed",  "fed/cba",  "def/abc",
                                    "ad/be/cf", "da/eb/fc", "fc/eb/da", "cf/be/ad"};

TEST(Orientation, MovesPixelsAsExifDefines) {
  const std::string stored = "abcdef";
  for (int orientation = 1; orientation <= 8; ++orientation) {
    data::Pixels pixels{.size = {3, 2}, .rgb = {}};
    for (const char letter : stored)
      for (const int channel : {0, 1, 2})
        pixels.rgb.push_back(static_cast<std::uint8_t>(letter + 32 * channel));
    const data::Pixels turned = data::upright(pixels, orientation);
    std::string rows;
    for (std::size_t i = 0; i < stored.size(); ++i) {
      if (i > 0 && i % static_cast<std::size_t>(turned.size.width) == 0) rows += '/';
      rows += static_cast<char>(turned.rgb[3 * i]);
      EXPECT_EQ(turned.rgb[3 * i + 2], turned.rgb[3 * i] + 64) << "channels are mixed";
    }
    EXPECT_EQ(rows, kUpright[orientation - 1]) << orientation;
  }
}

/// Returns EXIF data: a directory with the width of the image (tag 256), then the orientation.
std::string exif(int orientation, bool big_endian) {
  return "Exif" + std::string(2, '\0') +
         testing::tiff_directory({{256, 3, 640}, {274, 3, static_cast<std::uint32_t>(orientation)}},
                                 big_endian);
}

/// Inserts a segment of metadata behind the start marker of a JPEG file.
std::string with_metadata(std::string jpeg, const std::string& data) {
  const std::size_t length = data.size() + 2;
  const std::string marker = {'\xFF', '\xE1', static_cast<char>(length >> 8), static_cast<char>(length)};
  return jpeg.insert(2, marker + data);
}

TEST(Orientation, OfExifTurnsJpegsUpright) {
  const std::string plain = testing::jpeg(Picture::ramp(24, 16, 3));
  for (const std::int64_t side : {0, 8})  // 8: may be reduced by 2
    for (const bool big_endian : {false, true})
      for (int orientation = 1; orientation <= 8; ++orientation) {
        const data::Pixels found = decode(with_metadata(plain, exif(orientation, big_endian)), side);
        const data::Pixels stored = decode(plain, side), expected = data::upright(stored, orientation);
        EXPECT_EQ(found.size.width, orientation >= 5 ? stored.size.height : stored.size.width);
        EXPECT_EQ(found.is_reduced, stored.is_reduced);
        EXPECT_EQ(found.rgb, expected.rgb) << orientation;
      }
  // A tensor has the shape of the upright image.
  EXPECT_EQ(data::decode_image(with_metadata(plain, exif(6, false)), "x").shape(), (Shape{24, 16, 3}));
}

TEST(Orientation, IsUprightIfMetadataAreDamagedOrOfAnotherKind) {
  const std::string plain = testing::jpeg(Picture::ramp(24, 16, 3));
  const std::vector<std::uint8_t> pixels = decode(plain).rgb;
  const std::string whole = exif(3, false);
  std::vector<std::string> damaged = {"http://ns.adobe.com/xap/1.0/", "", exif(0, false), exif(9, true)};
  for (std::size_t size = 0; size + 6 < whole.size(); ++size) damaged.push_back(whole.substr(0, size));
  const auto edited = [&](std::size_t at, const std::string& bytes) {
    std::string copy = whole;
    damaged.push_back(copy.replace(at, bytes.size(), bytes));
  };
  edited(6, "XX");                           // the byte order
  edited(8, "+");                            // the version
  edited(10, "\xFF\xFF\xFF\xFF");            // a directory beyond the end
  edited(10, std::string("\x1A\0\0\0", 4));  // one at the last bytes
  edited(28, std::string("\x13\x01", 2));    // another tag than the orientation
  edited(30, std::string("\4\0", 2));        // a number of 4 bytes
  edited(32, std::string("\2\0\0\0", 4));    // two numbers
  for (const std::string& data : damaged) EXPECT_EQ(decode(with_metadata(plain, data)).rgb, pixels);
  // A directory that claims more entries than there are: the first ones count.
  std::string longer = whole;
  longer.replace(14, 2, "\xFF\xFF");
  EXPECT_EQ(decode(with_metadata(plain, longer)).rgb, data::upright(decode(plain), 3).rgb);
}

/// Tests of WebP, for builds that read it.
class WebP : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!data::reads_webp()) GTEST_SKIP() << "this build has no libwebp";
  }
};

TEST_F(WebP, IsDecodedWithAlphaOnWhite) {
  const data::Pixels pixels = decode(testing::webp());
  EXPECT_EQ(pixels.size.width, 3);
  EXPECT_EQ(pixels.size.height, 2);
  // The fourth pixel is red of alpha 51, a fifth, and the fifth one is transparent.
  EXPECT_EQ(pixels.rgb, (std::vector<std::uint8_t>{10, 20, 30, 200, 100, 50, 0, 255, 0, 255, 204, 204, 255,
                                                   255, 255, 9, 8, 7}));
}

TEST_F(WebP, EveryTruncationIsRefused) {
  const std::string whole = testing::webp();
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(refusal(whole.substr(0, size)), "") << size << " of " << whole.size() << " bytes";
}

TEST_F(WebP, AnimationsAndHugeImagesAreRefused) {
  const auto extended = [](char flags, std::uint32_t width, std::uint32_t height) {
    const auto little24 = [](std::uint32_t value) {
      return std::string{static_cast<char>(value), static_cast<char>(value >> 8),
                         static_cast<char>(value >> 16)};
    };
    return std::string("RIFF\x16\0\0\0WEBPVP8X\x0A\0\0\0", 20) + flags + std::string(3, '\0') +
           little24(width - 1) + little24(height - 1);
  };
  EXPECT_THAT(refusal(extended('\2', 8, 8)), HasSubstr("an animated WebP image, expected a still one"));
  EXPECT_THAT(refusal(extended('\0', 8, 8)), HasSubstr("damaged"));
}

/// Tests of TIFF, for builds that read it.
class Tiff : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!data::reads_tiff()) GTEST_SKIP() << "this build has no libtiff";
  }
};

TEST_F(Tiff, KeepsEveryPixelInEachOrientation) {
  const Picture picture = Picture::ramp(5, 3, 3);
  for (const bool big_endian : {false, true})
    for (int orientation = 1; orientation <= 8; ++orientation) {
      const data::Pixels found = decode(testing::tiff(picture, orientation, big_endian));
      const data::Pixels expected = data::upright({.size = {5, 3}, .rgb = picture.pixels}, orientation);
      EXPECT_EQ(found.size.width, expected.size.width) << orientation;
      EXPECT_EQ(found.rgb, expected.rgb) << orientation;
    }
}

TEST_F(Tiff, GreyBecomesRgbAndAlphaIsCompositedOnWhite) {
  const Picture grey = Picture::ramp(4, 3, 1);
  const std::vector<std::uint8_t> rgb = decode(testing::tiff(grey)).rgb;
  ASSERT_EQ(rgb.size(), 36u);
  for (std::size_t i = 0; i < rgb.size(); ++i) EXPECT_EQ(rgb[i], grey.pixels[i / 3]) << i;
  const Picture picture{3, 1, 4, {10, 20, 30, 255, 10, 20, 30, 0, 0, 100, 255, 51}};
  EXPECT_EQ(decode(testing::tiff(picture)).rgb,
            (std::vector<std::uint8_t>{10, 20, 30, 255, 255, 255, 204, 224, 255}));
}

TEST_F(Tiff, EveryTruncationIsRefusedWithoutOutput) {
  const std::string whole = testing::tiff(Picture::ramp(5, 4, 3));
  ::testing::internal::CaptureStderr();  // where libtiff prints its messages by default
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_THAT(refusal(whole.substr(0, size)), HasSubstr("in memory: ")) << size << " of " << whole.size();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(Tiff, HugeSizesAreRefused) {
  std::string bytes = testing::tiff(Picture::plain(4, 4, 3, 7));
  const std::size_t width = bytes.find(std::string("\0\1\3\0\1\0\0\0\4\0", 10));
  ASSERT_NE(width, std::string::npos);
  bytes.replace(width + 8, 2, "\xFF\xFF");
  EXPECT_THAT(refusal(bytes), HasSubstr("damaged"));
  bytes.replace(width + 2, 1, "\4");  // a number of 4 bytes
  bytes.replace(width + 8, 4, "\xFF\xFF\xFF\x7F");
  EXPECT_THAT(refusal(bytes), HasSubstr("2147483647 x 4 pixels, expected sides of 1 to 65535"));
}

TEST(ImageFormats, AreThoseOfTheBuild) {
  EXPECT_THAT(data::image_formats_text(), HasSubstr("JPEG, PNG"));
  EXPECT_EQ(data::image_formats_text().find("WebP") != std::string::npos, data::reads_webp());
  EXPECT_EQ(data::image_formats_text().find("TIFF") != std::string::npos, data::reads_tiff());
  EXPECT_EQ(data::is_image_name("a.WebP"), data::reads_webp());
  EXPECT_EQ(data::is_image_name("a.tif") && data::is_image_name("a.TIFF"), data::reads_tiff());
  EXPECT_FALSE(data::is_image_name("a.gif"));
  if (!data::reads_webp()) {
    EXPECT_THAT(refusal(testing::webp()), HasSubstr("install libwebp-dev"));
  }
  if (!data::reads_tiff()) {
    EXPECT_THAT(refusal(testing::tiff(Picture::plain(2, 2, 3, 1))), HasSubstr("install libtiff-dev"));
  }
}

}  // namespace
}  // namespace convoy
