// Tests of the orientation of photographs, and of WebP files.
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
std::string exif(int orientation, bool big_endian, int type = 3) {
  return "Exif" + std::string(2, '\0') +
         testing::tiff_directory({{256, 3, 640}, {274, type, static_cast<std::uint32_t>(orientation)}},
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

TEST(Orientation, OfTheFirstExifDataCountsInBothTypesOfNumbers) {
  const std::string plain = testing::jpeg(Picture::ramp(24, 16, 3));
  const std::vector<std::uint8_t> turned = data::upright(decode(plain), 6).rgb;
  for (const bool big_endian : {false, true})
    EXPECT_EQ(decode(with_metadata(plain, exif(6, big_endian, 4))).rgb, turned) << "a number of 4 bytes";
  EXPECT_EQ(decode(with_metadata(with_metadata(plain, exif(3, false)), exif(6, false))).rgb, turned);
}

TEST(Orientation, OfExifTurnsPngs) {
  const std::string rows("\0abc\0def", 8);
  for (const bool big_endian : {false, true})
    for (int orientation = 1; orientation <= 8; ++orientation)
      for (const std::size_t prefix :
           {std::size_t{0}, std::size_t{6}}) {  // some programs keep the prefix of JPEG
        const std::string chunk = testing::png_chunk("eXIf", exif(orientation, big_endian).substr(prefix));
        std::string last = testing::raw_png(3, 2, 8, 0, rows);
        last.insert(last.size() - 12, chunk);  // before IEND
        for (const std::string& file : {testing::raw_png(3, 2, 8, 0, rows, chunk), last}) {
          const data::Pixels found = decode(file);
          std::string text;
          for (std::size_t i = 0; i < 6; ++i) {
            if (i > 0 && i % static_cast<std::size_t>(found.size.width) == 0) text += '/';
            text += static_cast<char>(found.rgb[3 * i]);
          }
          EXPECT_EQ(text, kUpright[orientation - 1]);
        }
      }
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
  edited(30, std::string("\1\0", 2));        // a number of 1 byte
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
    if (!data::reads_webp()) GTEST_SKIP() << "needs a build with libwebp";
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

/// Tests of HEIC, for builds that read it.
class Heic : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!data::reads_heif()) GTEST_SKIP() << "needs a build with libheif";
  }
};

TEST_F(Heic, IsDecoded) {
  const data::Pixels pixels = decode(testing::heic());
  ASSERT_EQ(pixels.size.width, 16);
  ASSERT_EQ(pixels.size.height, 8);
  const int expected[2][3] = {{250, 20, 20}, {20, 20, 250}};
  for (const int x : {2, 13})
    for (int c = 0; c < 3; ++c)
      EXPECT_NEAR(pixels.rgb[static_cast<std::size_t>((4 * 16 + x) * 3 + c)], expected[x / 8][c], 24) << x;
}

TEST_F(Heic, EveryTruncationIsRefused) {
  const std::string whole = testing::heic();
  for (std::size_t size = 12; size < whole.size(); size += 23)
    EXPECT_THROW(decode(whole.substr(0, size)), DataError) << size;
}

/// Returns the WebP file in the extended format with these flags, and chunks behind the image.
std::string extended_webp(char flags, const std::string& chunks) {
  const std::string image = testing::webp().substr(12);
  std::string body =
      std::string("WEBPVP8X\x0A\0\0\0", 12) + flags + std::string("\0\0\0\2\0\0\1\0\0", 9) + image;
  body += std::string(image.size() % 2, '\0') + chunks;
  return "RIFF" + std::string{static_cast<char>(body.size()), static_cast<char>(body.size() >> 8), 0, 0} +
         body;
}

std::string riff_chunk(const std::string& name, const std::string& data) {
  return name + std::string{static_cast<char>(data.size()), 0, 0, 0} + data +
         std::string(data.size() % 2, '\0');
}

TEST_F(WebP, IsTurnedAsItsExifDataSay) {
  constexpr char kAlphaAndExif = 0x18, kAlpha = 0x10;
  const data::Pixels stored = decode(testing::webp());
  for (const bool big_endian : {false, true})
    for (int orientation = 1; orientation <= 8; ++orientation)
      for (const std::size_t prefix : {std::size_t{0}, std::size_t{6}}) {
        const std::string metadata = exif(orientation, big_endian).substr(prefix);
        const std::string file =
            extended_webp(kAlphaAndExif, riff_chunk("odd ", "123") + riff_chunk("EXIF", metadata));
        const data::Pixels found = decode(file), expected = data::upright(stored, orientation);
        EXPECT_EQ(found.size.width, expected.size.width);
        EXPECT_EQ(found.rgb, expected.rgb) << orientation;
      }
  EXPECT_EQ(decode(extended_webp(kAlpha, riff_chunk("EXIF", exif(6, false)))).rgb, stored.rgb)
      << "not announced";
  EXPECT_EQ(decode(extended_webp(kAlphaAndExif, riff_chunk("EXIF", "?"))).rgb, stored.rgb);
  const std::string whole = extended_webp(kAlphaAndExif, riff_chunk("EXIF", exif(6, false)));
  for (std::size_t size = 0; size < whole.size(); ++size)  // reads nothing behind the end
    EXPECT_LE(data::orientation_of_webp(whole.substr(0, std::max<std::size_t>(size, 12))), 6);
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

TEST(ImageFormats, AreThoseOfTheBuild) {
  EXPECT_THAT(data::image_formats_text(), HasSubstr("JPEG, PNG"));
  EXPECT_EQ(data::image_formats_text().find("WebP") != std::string::npos, data::reads_webp());
  EXPECT_EQ(data::is_image_name("a.WebP"), data::reads_webp());
  EXPECT_FALSE(data::is_image_name("a.tif"));
  EXPECT_FALSE(data::is_image_name("a.gif"));
  EXPECT_EQ(data::is_image_name("a.HEIC"), data::reads_heif());
  if (!data::reads_heif()) {
    EXPECT_THAT(refusal(testing::heic()), HasSubstr("install libheif-dev"));
  }
  if (!data::reads_webp()) {
    EXPECT_THAT(refusal(testing::webp()), HasSubstr("install libwebp-dev"));
  }
}

// Tests of JPEG images that libjpeg-turbo reduces while it decodes them, because they are resized afterwards.

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

TEST(ReducedJpeg, RoundsItsSidesUp) {
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

TEST(ReducedJpeg, HasThePixelsOfTheWholeImageAfterResizing) {
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

TEST(ReducedJpeg, IsRefusedIfImageDataEndEarly) {
  const std::string whole = testing::jpeg(Picture::ramp(40, 40, 3));
  const std::size_t data = whole.find("\xFF\xDA") + 14;
  for (const int side : {5, 10, 20})
    EXPECT_THAT(testing::message_of<DataError>(
                    [&] { data::decode_rgb(whole.substr(0, data + 8) + "\xFF\xD9", "bad.file", side); }),
                HasSubstr("premature end of data segment"));
}

}  // namespace

}  // namespace convoy
