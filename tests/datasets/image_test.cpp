// Tests of image decoding and resizing: all formats, and invalid files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/transforms/resize.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/image_files.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::message_of;
using testing::Picture;
using testing::TempDirectory;

std::vector<std::uint8_t> decode(const std::string& bytes, int size = 0) {
  return data::decode_image(bytes, "in memory", size).to_vector<std::uint8_t>();
}

/// Returns the message of the DataError for these bytes, and checks that it contains the file name.
std::string image_refusal(const std::string& bytes) {
  const std::string message = message_of<DataError>([&] { data::decode_image(bytes, "bad.file"); });
  EXPECT_THAT(message, HasSubstr("bad.file"));
  return message;
}

TEST(DecodeImage, PngAndBmpKeepEveryPixel) {
  const Picture picture = Picture::ramp(13, 7, 3);
  for (const std::string& bytes : {testing::png(picture), testing::bmp(picture)}) {
    const Tensor image = data::decode_image(bytes, "in memory");
    EXPECT_EQ(image.shape(), (Shape{7, 13, 3}));
    EXPECT_EQ(image.to_vector<std::uint8_t>(), picture.pixels);
  }
}

TEST(DecodeImage, JpegIsClose) {
  const Picture picture = Picture::ramp(24, 16, 3);
  const std::vector<std::uint8_t> pixels = decode(testing::jpeg(picture));
  ASSERT_EQ(pixels.size(), picture.pixels.size());
  // At quality 95, quantization steps are at most 10 (luminance) and 15 (chrominance). A smooth ramp has few
  // nonzero coefficients. Their errors of half a step each stay below one step in total.
  for (std::size_t i = 0; i < pixels.size(); ++i) EXPECT_NEAR(pixels[i], picture.pixels[i], 12) << "at " << i;
}

TEST(DecodeImage, GreyBecomesThreeEqualChannels) {
  const Picture picture = Picture::ramp(5, 4, 1);
  const std::vector<std::uint8_t> pixels = decode(testing::png(picture));
  ASSERT_EQ(pixels.size(), 60u);
  for (std::size_t i = 0; i < pixels.size(); ++i) EXPECT_EQ(pixels[i], picture.pixels[i / 3]);
  EXPECT_EQ(decode(testing::jpeg(Picture::plain(8, 8, 1, 90))).size(), 192u);
}

TEST(DecodeImage, AlphaIsCompositedOnWhite) {
  Picture picture{3, 1, 4, {10, 20, 30, 255, 10, 20, 30, 0, 0, 100, 255, 51}};
  // Alpha 51 is a fifth: 255 * 4/5 + value / 5.
  EXPECT_EQ(decode(testing::png(picture)),
            (std::vector<std::uint8_t>{10, 20, 30, 255, 255, 255, 204, 224, 255}));
  picture = {2, 1, 2, {7, 255, 100, 51}};
  EXPECT_EQ(decode(testing::png(picture)), (std::vector<std::uint8_t>{7, 7, 7, 224, 224, 224}));
}

TEST(DecodeImage, SixteenBitsAreReducedToEight) {
  const std::string rows("\0\x12\x34\xAB\xCD", 5);  // filter byte, two grey pixels
  EXPECT_EQ(decode(testing::raw_png(2, 1, 16, 0, rows)),
            (std::vector<std::uint8_t>{0x12, 0x12, 0x12, 0xAB, 0xAB, 0xAB}));
}

TEST(DecodeImage, PaletteIsApplied) {
  const std::string palette = testing::png_chunk("PLTE", std::string("\1\2\3\4\5\6", 6));
  const std::string rows("\0\1\0", 3);
  EXPECT_EQ(decode(testing::raw_png(2, 1, 8, 3, rows, palette)),
            (std::vector<std::uint8_t>{4, 5, 6, 1, 2, 3}));
}

TEST(DecodeImage, EveryTruncationIsRefused) {
  const Picture picture = Picture::ramp(16, 9, 3);
  for (const std::string& whole : {testing::png(picture), testing::bmp(picture), testing::jpeg(picture)})
    for (std::size_t size = 0; size < whole.size(); ++size)
      EXPECT_NE(image_refusal(whole.substr(0, size)), "") << size << " of " << whole.size() << " bytes";
}

TEST(DecodeImage, EveryFlippedByteOfAPngIsDetected) {
  const std::string whole = testing::png(Picture::ramp(6, 5, 3));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    EXPECT_NE(image_refusal(damaged), "") << "byte " << at;
  }
}

TEST(DecodeImage, UnknownFormatsAreRefused) {
  EXPECT_THAT(image_refusal(""), HasSubstr("empty"));
  for (const std::string& bytes :
       {std::string("hello, world"), std::string("GIF89a\1\0\1\0", 10), std::string(100, '\0')})
    EXPECT_THAT(image_refusal(bytes), HasSubstr("expected a JPEG, PNG"));
}

/// Returns a JPEG with these sizes in its frame header.
std::string jpeg_claiming(int width, int height) {
  std::string bytes = testing::jpeg(Picture::ramp(16, 16, 3));
  const std::size_t frame = bytes.find("\xFF\xC0");
  for (const auto& [offset, value] : {std::pair(5u, height), std::pair(7u, width)}) {
    bytes[frame + offset] = static_cast<char>(value >> 8);
    bytes[frame + offset + 1] = static_cast<char>(value);
  }
  return bytes;
}

std::string bmp_claiming(std::uint32_t width, std::uint32_t height) {
  std::string bytes = testing::bmp(Picture::ramp(16, 16, 3));
  for (int i = 0; i < 4; ++i) {
    bytes[static_cast<std::size_t>(18 + i)] = static_cast<char>(width >> (8 * i));
    bytes[static_cast<std::size_t>(22 + i)] = static_cast<char>(height >> (8 * i));
  }
  return bytes;
}

TEST(DecodeImage, HugeSizesInTheHeaderAreRefused) {
  for (const std::string& bytes :
       {testing::raw_png(60000, 60000, 8, 2, "x"), jpeg_claiming(60000, 60000), bmp_claiming(60000, 60000)})
    EXPECT_THAT(image_refusal(bytes), AllOf(HasSubstr("60000 x 60000"), HasSubstr("at most 67108864")));
  EXPECT_THAT(image_refusal(testing::raw_png(0xFFFFFFFFu, 0xFFFFFFFFu, 8, 2, "x")), HasSubstr("4294967295"));
  EXPECT_THAT(image_refusal(bmp_claiming(0x80000000u, 0x80000000u)), HasSubstr("expected sides"));
  EXPECT_THAT(image_refusal(testing::raw_png(0, 5, 8, 2, "x")), HasSubstr("0 x 5"));
  // Below the limit, but impossible for so few bytes.
  for (const std::string& bytes :
       {testing::raw_png(8000, 8000, 8, 2, "x"), jpeg_claiming(8000, 8000), bmp_claiming(8000, 8000)})
    EXPECT_THAT(image_refusal(bytes), HasSubstr("8000 x 8000 pixels cannot be stored in"));
}

TEST(DecodeImage, APngThatInflatesBeyondItsHeaderIsRefused) {
  const std::string bomb = testing::raw_png(1, 1, 8, 2, std::string(std::size_t{32} << 20, '\0'));
  ASSERT_LT(bomb.size(), 40000u);
  EXPECT_THAT(image_refusal(bomb), HasSubstr("damaged"));
}

TEST(DecodeImage, PngChunksOutOfPlaceAreRefused) {
  EXPECT_THAT(image_refusal("\x89PNG\r\n\x1a\n" + testing::png_chunk("IEND", "")), HasSubstr("IHDR"));
  EXPECT_THAT(
      image_refusal(testing::raw_png(1, 1, 8, 0, std::string("\0\1", 2), testing::png_chunk("ABCD", "?"))),
      HasSubstr("unknown type"));
  EXPECT_THAT(image_refusal(testing::raw_png(2, 2, 8, 0, std::string("\0\1", 2))),
              HasSubstr("damaged"));  // one row is missing
  EXPECT_EQ(decode(testing::raw_png(1, 1, 8, 0, std::string("\0\1", 2), testing::png_chunk("abCd", "?"))),
            (std::vector<std::uint8_t>{1, 1, 1}));
}

TEST(DecodeImage, JpegsThatMisleadTheDecoderAreRefused) {
  const std::string whole = testing::jpeg(Picture::ramp(16, 16, 3));
  const std::size_t tables = whole.find("\xFF\xC4"), frame = whole.find("\xFF\xC0"),
                    scan = whole.find("\xFF\xDA");
  const std::string frame_segment = whole.substr(frame, 19);

  std::string bytes = whole;
  for (std::size_t bits = 0; bits < 16; ++bits) bytes[tables + 5 + bits] = '\xFF';
  EXPECT_THAT(image_refusal(bytes), HasSubstr("Bogus Huffman table"));

  bytes = whole;
  bytes.insert(frame, frame_segment);
  EXPECT_THAT(image_refusal(bytes), HasSubstr("two SOF markers"));

  bytes = whole;
  bytes[frame + 1] = '\xC9';
  EXPECT_THAT(image_refusal(bytes), HasSubstr("expected baseline or progressive"));

  bytes = whole;
  bytes.erase(frame, frame_segment.size());
  EXPECT_THAT(image_refusal(bytes), HasSubstr("without image data"));

  bytes = whole;
  bytes.erase(frame, frame_segment.size());
  bytes.insert(bytes.size() - 2, frame_segment);
  EXPECT_THAT(image_refusal(bytes), HasSubstr("SOS before SOF"));

  bytes = whole;
  bytes[scan + 6] = '\x33';  // undefined tables
  EXPECT_THAT(image_refusal(bytes), HasSubstr("Huffman table 0x03 was not defined"));

  bytes = whole.substr(0, scan);
  for (int i = 0; i < 101; ++i) bytes += whole.substr(scan, 14);
  EXPECT_THAT(image_refusal(bytes + "\xFF\xD9"), HasSubstr("more than 100 scans"));

  EXPECT_THAT(image_refusal(whole.substr(0, scan) + "\xFF\xD9"), HasSubstr("without image data"));
}

TEST(DecodeImage, LibjpegRefusesImageDataThatEndEarly) {
  const std::string whole = testing::jpeg(Picture::ramp(40, 40, 3));
  const std::size_t data = whole.find("\xFF\xDA") + 14;
  for (const std::size_t kept : {std::size_t{1}, (whole.size() - 2 - data) / 2})
    EXPECT_THAT(image_refusal(whole.substr(0, data + kept) + "\xFF\xD9"),
                HasSubstr("premature end of data segment"));
}

TEST(DecodeImage, LibjpegAcceptsBytesBetweenSegments) {
  const std::string whole = testing::jpeg(Picture::ramp(16, 16, 3));
  std::string bytes = whole;
  bytes.insert(bytes.find("\xFF\xDA"), "spare");
  EXPECT_EQ(decode(bytes), decode(whole));
}

TEST(DecodeImage, LibjpegRefusesAnotherSizeThanTheCheckedOne) {
  const std::string bytes = testing::jpeg(Picture::ramp(16, 9, 3));
  EXPECT_THAT(message_of<DataError>([&] {
                data::decode_with_libjpeg(bytes, "bad.file", {16, 8});
              }),
              AllOf(HasSubstr("found 16 x 9 pixels"), HasSubstr("expected a JPEG image of 16 x 8 pixels")));
}

/// Returns a JPEG of one block with 1 to 4 components, all of value 128. `transform` is that of Adobe's segment; -1:
/// the file has none.
std::string flat_jpeg(char components, int transform = -1) {
  std::string bytes = testing::jpeg(Picture::plain(8, 8, 1, 128));
  bytes.resize(bytes.find("\xFF\xDA"));
  const std::size_t frame = bytes.find("\xFF\xC0");
  std::string header("\xFF\xC0\0?\x08\0\x08\0\x08", 9), scan("\xFF\xDA\0?", 4);
  header[3] = static_cast<char>(8 + 3 * components);
  scan[3] = static_cast<char>(6 + 2 * components);
  header += components;
  scan += components;
  // The image data are, per component, a zero difference of DC (00) and the end of the block (1010), in the
  // tables of ISO/IEC 10918-1, annex K. Ones pad the last byte.
  std::uint32_t data = 0xFFFFFFFFu >> (6 * components);
  for (char id = 1; id <= components; ++id) {
    header += {id, '\x11', '\0'};
    scan += {id, '\0'};
    data |= 0b001010u << (32 - 6 * id);
  }
  if (transform >= 0)
    header.insert(0,
                  std::string("\xFF\xEE\0\x0E\x41\x64obe\0\x64\0\0\0\0", 15) + static_cast<char>(transform));
  bytes.replace(frame, 2 + static_cast<std::size_t>(bytes[frame + 3]), header);
  return bytes + scan + std::string("\0\x3F\0", 3) +
         testing::big32(data).substr(0, (6u * components + 7) / 8) + "\xFF\xD9";
}

TEST(DecodeImage, JpegsOfOneAndThreeComponentsAreDecoded) {
  for (const char components : {'\1', '\3'})
    EXPECT_EQ(decode(flat_jpeg(components)), std::vector<std::uint8_t>(192, 128)) << int{components};
  EXPECT_THAT(image_refusal(flat_jpeg(2)), HasSubstr("damaged"));
}

TEST(DecodeImage, CmykIsConverted) {
  // Inverted CMYK stores what the ink leaves of the light: 128/255 of the color, and 128/255 of that by black. Without
  // Adobe's segment the components are CMYK too, and with another transform than 0 they are YCCK, as in libjpeg.
  for (const int transform : {-1, 0, 1, 2})
    EXPECT_EQ(decode(flat_jpeg(4, transform)), std::vector<std::uint8_t>(192, 64)) << transform;
}

TEST(DecodeImage, CmykWithoutAdobesSegmentHasTheColorsOfCmyk) {
  const auto brighter = [](int transform) {
    std::string bytes = flat_jpeg(4, transform);
    const std::size_t scan = bytes.find("\xFF\xDA");
    bytes.resize(scan + 2 + static_cast<std::size_t>(bytes[scan + 3]));
    // Category 5 (110) with the difference 31 (11111) for cyan, the end of the block (1010), and three blocks as above.
    return bytes + "\xDF\xA2\x8A\x2B\xFF\xD9";
  };
  const std::vector<std::uint8_t> marked = decode(brighter(0));
  EXPECT_EQ(decode(brighter(-1)), marked);
  EXPECT_GT(marked[0], 64);  // less cyan ink leaves more red
  EXPECT_EQ(marked[1], 64);
  EXPECT_EQ(marked[2], 64);
}

TEST(DecodeImage, RefusesImpossibleSizes) {
  const std::string bytes = testing::png(Picture::ramp(2, 2, 3));
  EXPECT_THROW(data::decode_image(bytes, "x", -1), UsageError);
  EXPECT_THROW(data::decode_image(bytes, "x", 100000), UsageError);
}

TEST(ReadImage, ReportsTheFileThatCannotBeRead) {
  const TempDirectory directory;
  EXPECT_THAT(message_of<DataError>([&] { data::read_image(directory.path() / "none.png"); }),
              AllOf(HasSubstr("none.png"), HasSubstr("No such file")));
  EXPECT_THAT(message_of<DataError>([&] { data::read_image(directory.path()); }),
              HasSubstr("not a regular file"));
  const auto file = directory.write("one.png", testing::png(Picture::plain(3, 2, 3, 9)));
  EXPECT_EQ(data::read_image(file).shape(), (Shape{2, 3, 3}));
  EXPECT_EQ(data::read_image(file, 4).shape(), (Shape{4, 4, 3}));
}

std::vector<std::uint8_t> resize(const Picture& picture, int size) {
  std::vector<std::uint8_t> out(static_cast<std::size_t>(size * size * picture.channels));
  data::resize_to_square({picture.pixels.data(), picture.height, picture.width, picture.channels}, size,
                         out.data());
  return out;
}

TEST(Resize, KeepsAConstantImageConstant) {
  for (const int size : {1, 3, 8, 20})
    for (const std::uint8_t value : resize(Picture::plain(8, 11, 3, 200), size)) EXPECT_EQ(value, 200);
}

TEST(Resize, EnlargesBilinearly) {
  const Picture picture{2, 2, 1, {0, 100, 0, 100}};
  // Output pixels are centered at 0.25, 0.75, 1.25, 1.75 of an axis whose input pixels are centered at 0.5
  // and 1.5.
  const std::vector<std::uint8_t> row = {0, 25, 75, 100};
  const std::vector<std::uint8_t> out = resize(picture, 4);
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], row[i % 4]) << "at " << i;
}

TEST(Resize, ShrinksWithATriangleFilter) {
  const Picture picture{8, 8, 1, [] {
                          std::vector<std::uint8_t> pixels(64, 0);
                          for (std::size_t y = 0; y < 8; ++y) pixels[y * 8 + 3] = 240;
                          return pixels;
                        }()};
  // Halving weights four pixels with 1 3 3 1 over 8. Column 3 is in the middle of output 1 and at the edge of
  // output 2.
  const std::vector<std::uint8_t> out = resize(picture, 4);
  const std::vector<std::uint8_t> row = {0, 90, 30, 0};
  // Output 0 is a mean of columns 0 to 2, without column -1. Column 3 is outside its filter.
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], row[i % 4]) << "at " << i;
}

// Resizes images of different sizes and channel counts one after another: no result depends on the previous
// one.
TEST(Resize, DoesNotDependOnThePreviousImage) {
  data::SquareResizer resizer(5);
  for (const auto& [width, height, channels] :
       {std::array{9, 7, 3}, std::array{9, 7, 3}, std::array{3, 4, 1}, std::array{30, 20, 4},
        std::array{5, 5, 2}, std::array{7, 9, 2}, std::array{9, 7, 3}}) {
    const Picture picture = Picture::ramp(width, height, channels);
    std::vector<std::uint8_t> out(static_cast<std::size_t>(5 * 5 * channels));
    resizer.run({picture.pixels.data(), height, width, channels}, out.data());
    EXPECT_EQ(out, resize(picture, 5)) << width << " x " << height << " x " << channels;
  }
}

TEST(Resize, ResizesChannelsIndependently) {
  const Picture all = Picture::ramp(9, 7, 4);
  const std::vector<std::uint8_t> expected = resize(all, 6);
  for (int c = 0; c < 4; ++c) {
    Picture one{9, 7, 1, {}};
    for (std::size_t i = 0; i < 63; ++i)
      one.pixels.push_back(all.pixels[i * 4 + static_cast<std::size_t>(c)]);
    const std::vector<std::uint8_t> found = resize(one, 6);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(found[i], expected[i * 4 + static_cast<std::size_t>(c)]) << "channel " << c << " at " << i;
  }
}

TEST(Resize, CropsTheCenterOfTheLongSide) {
  Picture wide = Picture::plain(12, 4, 3, 0);
  for (int y = 0; y < 4; ++y)
    for (int x = 4; x < 8; ++x)
      for (int c = 0; c < 3; ++c) wide.pixels[static_cast<std::size_t>((y * 12 + x) * 3 + c)] = 77;
  for (const std::uint8_t value : resize(wide, 4)) EXPECT_EQ(value, 77);
  Picture strip = Picture::plain(60000, 1, 1, 50);  // only its center is used
  for (const std::uint8_t value : resize(strip, 64)) EXPECT_EQ(value, 50);
}

}  // namespace
}  // namespace convoy
