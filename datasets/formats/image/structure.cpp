// Structural checks of BMP, PNG and JPEG files, and the orientation in EXIF data.
#include <zlib.h>
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

/// Returns the number that up to 4 bytes are, in one of the byte orders.
std::uint32_t number_of(std::string_view bytes, bool is_big) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    value = value << 8 | static_cast<std::uint8_t>(bytes[is_big ? i : bytes.size() - 1 - i]);
  return value;
}

/// A read position in the contents of a file. Every read throws DataError with the file name if the bytes end
/// too early. The caller keeps the bytes and the name alive.
class ByteReader {
 public:
  ByteReader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::size_t position() const { return position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }
  const std::string& name() const { return name_; }

  /// Returns the next `count` bytes and advances. `what` describes them in the error message.
  std::string_view take(std::size_t count, std::string_view what) {
    if (count > remaining())
      fail<DataError>("{}: cut off at byte {}, expected {} ({} bytes) at byte {}", name_, bytes_.size(), what,
                      count, position_);
    const std::string_view taken = bytes_.substr(position_, count);
    position_ += count;
    return taken;
  }
  std::uint8_t u8(std::string_view what) { return static_cast<std::uint8_t>(take(1, what)[0]); }
  std::uint32_t big16(std::string_view what) { return number_of(take(2, what), true); }
  std::uint32_t big32(std::string_view what) { return number_of(take(4, what), true); }
  std::uint32_t little16(std::string_view what) { return number_of(take(2, what), false); }
  std::uint32_t little32(std::string_view what) { return number_of(take(4, what), false); }

 private:
  std::string_view bytes_;
  const std::string& name_;
  std::size_t position_ = 0;
};

}  // namespace

// The structure of BMP files: a file header of 14 bytes, an information header that starts with its own
// length, and rows padded to 4 bytes.

bool is_bmp(std::string_view bytes) { return bytes.starts_with("BM"); }

ImageSize check_bmp(std::string_view bytes, const std::string& name) {
  constexpr std::uint32_t kCoreHeader = 12;  // bytes; OS/2 header with 16-bit sizes
  ByteReader in(bytes, name);
  in.take(10, "the file header");
  const std::uint64_t pixels_at = in.little32("the offset of the pixels");
  const std::uint32_t header = in.little32("the header's length");
  std::int64_t width = 0, height = 0;
  if (header == kCoreHeader) {
    width = in.little16("the width");
    height = in.little16("the height");
  } else {
    width = static_cast<std::int32_t>(in.little32("the width"));
    height = static_cast<std::int32_t>(in.little32("the height"));
  }
  in.little16("the number of planes");
  const std::int64_t bits = in.little16("bits per pixel");
  // A negative height means that the top row comes first.
  const ImageSize size = check_image_size(width, height < 0 ? -height : height, 8, bytes, name);
  const auto row_bytes = static_cast<std::uint64_t>((size.width * bits + 31) / 32 * 4);
  const std::uint64_t end = pixels_at + row_bytes * static_cast<std::uint64_t>(size.height);
  if (end > bytes.size())
    fail<DataError>("{}: cut off: {} bytes, expected {} for {} x {} pixels of {} bits", name, bytes.size(),
                    end, size.width, size.height, bits);
  return size;
}

// The structure of PNG files (ISO/IEC 15948). A chunk is a big-endian length, a type of four letters, data,
// and the CRC of type and data.

namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
constexpr std::uint32_t kMaxChunk = 0x7fffffff;  // bytes; the limit of the standard

struct Chunk {
  std::string_view type, data;
};

Chunk next_chunk(ByteReader& in) {
  const std::size_t at = in.position();
  const std::uint32_t length = in.big32("a chunk");
  if (length > kMaxChunk) fail<DataError>("{}: a chunk of {} bytes at byte {}", in.name(), length, at);
  const std::string_view body = in.take(length + std::size_t{4}, "a chunk's type and data");
  const std::uint32_t expected = in.big32("a chunk's checksum");
  const auto found = static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size())));
  if (found != expected)
    fail<DataError>("{}: damaged: checksum {:08x} of the chunk at byte {}, expected {:08x}", in.name(), found,
                    at, expected);
  return {body.substr(0, 4), body.substr(4)};
}

}  // namespace

bool is_png(std::string_view bytes) { return bytes.starts_with(kSignature); }

ImageSize check_png(std::string_view bytes, const std::string& name, int& orientation) {
  ByteReader in(bytes, name);
  in.take(kSignature.size(), "the signature");
  const Chunk first = next_chunk(in);
  if (first.type != "IHDR") fail<DataError>("{}: the first PNG chunk is not IHDR", name);
  ByteReader header(first.data, name);
  const std::uint32_t width = header.big32("the width");
  const std::uint32_t height = header.big32("the height");
  // The compression ratio of deflate is at most 1032, and a pixel takes at least one bit.
  const ImageSize size = check_image_size(width, height, 1032 * 8, bytes, name);
  for (Chunk chunk = next_chunk(in); chunk.type != "IEND"; chunk = next_chunk(in)) {
    const bool critical = (chunk.type[0] & 0x20) == 0;  // upper-case letter: a decoder must know the chunk
    if (critical && chunk.type != "PLTE" && chunk.type != "IDAT")
      fail<DataError>("{}: a PNG chunk of unknown type at byte {}", name,
                      in.position() - chunk.data.size() - 12);
    if (chunk.type == "eXIf") orientation = orientation_of_exif(chunk.data);
  }
  return size;
}

// The structure of JPEG files (ISO/IEC 10918-1, annex B). A segment is FF, a marker, and a big-endian length
// that includes itself.

namespace {

constexpr std::string_view kExif("Exif\0\0", 6);  // before EXIF data

enum Marker : int {
  kFirstFrame = 0xC0,
  kProgressive = 0xC2,
  kHuffmanTables = 0xC4,
  kArithmeticExtension = 0xC8,
  kArithmeticTables = 0xCC,
  kLastFrame = 0xCF,
  kFirstRestart = 0xD0,
  kLastRestart = 0xD7,
  kEnd = 0xD9,
  kScan = 0xDA,
  kApplication1 = 0xE1,
};

// Encoders write one scan, or about ten. The decoder traverses the whole image for each of them.
constexpr int kMaxScans = 100;

bool is_frame(int marker) {
  return marker >= kFirstFrame && marker <= kLastFrame && marker != kHuffmanTables &&
         marker != kArithmeticExtension && marker != kArithmeticTables;
}

/// Returns the next marker in `bytes`, which `in` reads, that is not padding, scan data (FF 00) or a restart.
int next_marker(ByteReader& in, std::string_view bytes) {
  for (;;) {
    const std::size_t at = bytes.find('\xFF', in.position());
    if (at == std::string_view::npos)
      fail<DataError>("{}: cut off: {} bytes without the end marker", in.name(), bytes.size());
    in.take(at + 1 - in.position(), "a marker");
    int marker = in.u8("a marker");
    while (marker == 0xFF) marker = in.u8("a marker");
    if (marker != 0 && (marker < kFirstRestart || marker > kLastRestart)) return marker;
  }
}

std::string_view next_segment(ByteReader& in) {
  const std::uint32_t length = in.big16("a segment");
  if (length < 2)
    fail<DataError>("{}: a segment of {} bytes at byte {}", in.name(), length, in.position() - 2);
  return in.take(length - 2u, "a segment");
}

}  // namespace

bool is_jpeg(std::string_view bytes) { return bytes.starts_with("\xFF\xD8\xFF"); }

ImageSize check_jpeg(std::string_view bytes, const std::string& name, int& orientation) {
  ByteReader in(bytes, name);
  in.take(2, "the start marker");
  ImageSize size;
  int scans = 0;
  bool has_exif = false;
  for (int marker = next_marker(in, bytes); marker != kEnd; marker = next_marker(in, bytes)) {
    const std::string_view segment = next_segment(in);
    if (marker == kScan && ++scans > kMaxScans) fail<DataError>("{}: more than {} scans", name, kMaxScans);
    if (marker == kApplication1 && segment.starts_with(kExif) && !std::exchange(has_exif, true))
      orientation = orientation_of_exif(segment);
    if (!is_frame(marker)) continue;
    if (marker > kProgressive)
      fail<DataError>("{}: a JPEG frame of type {:#x}, expected baseline or progressive with Huffman codes",
                      name, marker);
    ByteReader header(segment, name);
    header.u8("bits per sample");
    const std::uint32_t height = header.big16("the height");
    const std::uint32_t width = header.big16("the width");
    // A block of 8 x 8 takes at least one bit. If no component has both of the largest sampling factors, the
    // largest component covers a sixteenth of the image.
    size = check_image_size(width, height, 8 * 64 * 16, bytes, name);
  }
  if (scans == 0 || size.width == 0) fail<DataError>("{}: a JPEG file without image data", name);
  return size;
}

namespace {

/// Returns the number at any position of untrusted bytes, which are big-endian if they begin with MM; nullopt beyond the
/// end.
std::optional<std::size_t> tiff_number(std::string_view bytes, std::size_t position, std::size_t size) {
  if (position > bytes.size() || size > bytes.size() - position) return std::nullopt;
  return number_of(bytes.substr(position, size), bytes.starts_with("MM"));
}

}  // namespace

int orientation_of_exif(std::string_view exif) {
  while (exif.starts_with(kExif)) exif.remove_prefix(kExif.size());
  constexpr std::size_t kTag = 274, kShort = 3, kLong = 4, kEntryBytes = 12;
  if (!(exif.starts_with("II") || exif.starts_with("MM")) || tiff_number(exif, 2, 2) != 42u) return 1;
  const auto directory = tiff_number(exif, 4, 4);
  const auto count = directory ? tiff_number(exif, *directory, 2) : std::nullopt;
  for (std::size_t i = 0; count && i < *count; ++i) {
    const std::size_t entry = *directory + 2 + i * kEntryBytes;
    const auto tag = tiff_number(exif, entry, 2);
    if (!tag) return 1;
    if (*tag != kTag) continue;
    // EXIF asks for a number of 2 bytes; some programs write 4.
    const auto type = tiff_number(exif, entry + 2, 2);
    const auto value = tiff_number(exif, entry + 8, type == kShort ? std::size_t{2} : std::size_t{4});
    const bool is_valid = (type == kShort || type == kLong) && tiff_number(exif, entry + 4, 4) == 1u &&
                          value && *value >= 1 && *value <= 8;
    return is_valid ? static_cast<int>(*value) : 1;
  }
  return 1;
}

int orientation_of_webp(std::string_view bytes) {
  // A chunk is a name of four letters, the length, little-endian, and data that are padded to an even length.
  constexpr std::size_t kFirst = 12, kHeader = 8, kFlags = kFirst + kHeader, kHasExif = 8;
  const auto flags = tiff_number(bytes, kFlags, 1);
  if (bytes.substr(kFirst, 4) != "VP8X" || !flags || (*flags & kHasExif) == 0) return 1;
  for (std::size_t at = kFirst;;) {
    const auto size = tiff_number(bytes, at + 4, 4);
    if (!size) return 1;
    if (bytes.substr(at, 4) == "EXIF") return orientation_of_exif(bytes.substr(at + kHeader, *size));
    at += kHeader + *size + *size % 2;
  }
}

Pixels upright(Pixels pixels, int orientation) {
  if (orientation <= 1 || orientation > 8) return pixels;
  const bool swaps = orientation >= 5;
  const bool flips_rows = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool flips_columns = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const auto [width, height] = pixels.size;
  Pixels result{
      .size = swaps ? ImageSize{height, width} : pixels.size, .rgb = {}, .is_reduced = pixels.is_reduced};
  result.rgb.resize(pixels.rgb.size());
  std::uint8_t* out = result.rgb.data();
  for (std::int64_t y = 0; y < result.size.height; ++y)
    for (std::int64_t x = 0; x < result.size.width; ++x, out += 3) {
      const std::int64_t row = swaps ? x : y, column = swaps ? y : x;
      const std::int64_t from_row = flips_rows ? height - 1 - row : row;
      const std::int64_t from_column = flips_columns ? width - 1 - column : column;
      std::copy_n(&pixels.rgb[static_cast<std::size_t>((from_row * width + from_column) * 3)], 3, out);
    }
  return result;
}

}  // namespace convoy::data
