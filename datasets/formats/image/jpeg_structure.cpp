// The structure of JPEG files (ISO/IEC 10918-1, annex B). A segment is FF, a marker, and a big-endian length
// that includes itself.
#include <array>

#include "convoy/datasets/formats/image/byte_reader.h"
#include "convoy/datasets/formats/image/image_structure.h"
#include "convoy/datasets/formats/image/orientation.h"

namespace convoy::data {
namespace {

enum Marker : int {
  kBaseline = 0xC0,
  kExtended = 0xC1,
  kProgressive = 0xC2,
  kHuffmanTables = 0xC4,
  kArithmeticExtension = 0xC8,
  kArithmeticTables = 0xCC,
  kLastFrame = 0xCF,
  kFirstRestart = 0xD0,
  kLastRestart = 0xD7,
  kStart = 0xD8,
  kEnd = 0xD9,
  kScan = 0xDA,
  kApplication1 = 0xE1,
};

// Encoders write one scan, or about ten. The decoder traverses the whole image for each of them.
constexpr int kMaxScans = 100;

/// Traverses the segments of a file.
class JpegWalk {
 public:
  JpegWalk(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name), in_(bytes, name) {}

  ImageSize run() {
    in_.take(2, "the start marker");
    for (int marker = next_marker(); marker != kEnd; marker = next_marker()) {
      if (marker == kScan) {
        scan();
        if (++scans_ > kMaxScans) fail<DataError>("{}: more than {} scans", name_, kMaxScans);
      } else if (marker == kHuffmanTables) {
        huffman_tables();
      } else if (is_frame(marker)) {
        frame(marker);
      } else if (marker == kApplication1) {
        metadata();
      } else {
        segment("a segment");
      }
    }
    if (scans_ == 0) fail<DataError>("{}: a JPEG file without image data", name_);
    return size_;
  }
  int orientation() const { return orientation_; }

 private:
  static bool is_frame(int marker) {
    return marker >= kBaseline && marker <= kLastFrame && marker != kHuffmanTables &&
           marker != kArithmeticExtension && marker != kArithmeticTables;
  }

  /// Returns the next marker that is not padding, scan data (FF 00) or a restart.
  int next_marker() {
    for (;;) {
      const std::size_t at = bytes_.find('\xFF', in_.position());
      if (at == std::string_view::npos)
        fail<DataError>("{}: cut off: {} bytes without the end marker", name_, bytes_.size());
      in_.take(at + 1 - in_.position(), "a marker");
      int marker = in_.u8("a marker");
      while (marker == 0xFF) marker = in_.u8("a marker");
      if (marker != 0 && (marker < kFirstRestart || marker > kLastRestart)) return marker;
    }
  }

  ByteReader segment(std::string_view what) {
    const std::uint16_t length = in_.big16(what);
    if (length < 2)
      fail<DataError>("{}: a segment of {} bytes at byte {}", name_, length, in_.position() - 2);
    return ByteReader(in_.take(length - 2u, what), name_);
  }

  void frame(int marker) {
    if (marker != kBaseline && marker != kExtended && marker != kProgressive)
      fail<DataError>("{}: a JPEG frame of type {:#x}, expected baseline or progressive with Huffman codes",
                      name_, marker);
    if (size_.width != 0) fail<DataError>("{}: two JPEG frames in one file", name_);
    progressive_ = marker == kProgressive;
    ByteReader header = segment("the frame header");
    if (const int bits = header.u8("bits"); bits != 8)
      fail<DataError>("{}: {} bits per sample, expected 8", name_, bits);
    const int height = header.big16("the height");
    const int width = header.big16("the width");
    components_ = header.u8("the number of components");
    // A block of 8 x 8 takes at least one bit. If no component has both of the largest sampling factors, the
    // largest component covers a sixteenth of the image.
    size_ = check_image_size(width, height, 8 * 64 * 16, bytes_, name_);
  }

  /// Reads the orientation if the segment holds EXIF data; other data have the same marker.
  void metadata() {
    constexpr std::string_view kExif("Exif\0\0", 6);
    ByteReader data = segment("metadata");
    const std::string_view bytes = data.take(data.remaining(), "metadata");
    if (bytes.starts_with(kExif)) orientation_ = orientation_of_tiff(bytes.substr(kExif.size()));
  }

  void huffman_tables() {
    ByteReader tables = segment("Huffman tables");
    while (tables.remaining() > 0) {
      const int target = tables.u8("a table's number");
      std::size_t codes = 0;
      for (int bits = 1; bits <= 16; ++bits) codes += tables.u8("code counts");
      if (target / 16 > 1 || target % 16 > 3 || codes == 0 || codes > 256)
        fail<DataError>("{}: Huffman table {:#04x} of {} codes, expected 1 to 256", name_, target, codes);
      tables.take(codes, "code values");
      defined_[static_cast<std::size_t>(target / 16)][static_cast<std::size_t>(target % 16)] = true;
    }
  }

  void scan() {
    if (size_.width == 0) fail<DataError>("{}: image data before the frame header", name_);
    ByteReader header = segment("the scan header");
    const int count = header.u8("the number of components");
    if (count < 1 || count > components_)
      fail<DataError>("{}: a scan of {} components in a frame of {}", name_, count, components_);
    std::array<int, 4> tables{};
    for (int i = 0; i < count && i < 4; ++i) {
      header.u8("a component");
      tables[static_cast<std::size_t>(i)] = header.u8("its tables");
    }
    const int first = header.u8("the first coefficient");
    const int last = header.u8("the last coefficient");
    const bool refines = header.u8("approximation") >= 16;
    for (int i = 0; i < count && i < 4; ++i) {
      const int table = tables[static_cast<std::size_t>(i)];
      if (first == 0 && !refines)
        require_table(0, table / 16);  // refinements of DC bits are not Huffman-coded
      if (last > 0 || !progressive_) require_table(1, table % 16);
    }
  }

  void require_table(std::size_t kind, int number) {
    if (number > 3 || !defined_[kind][static_cast<std::size_t>(number)])
      fail<DataError>("{}: a scan uses {} Huffman table {}, which the file does not define before it", name_,
                      kind == 0 ? "DC" : "AC", number);
  }

  std::string_view bytes_;
  const std::string& name_;
  ByteReader in_;
  ImageSize size_;
  bool progressive_ = false;
  int components_ = 0;
  int scans_ = 0;
  int orientation_ = 1;
  std::array<std::array<bool, 4>, 2> defined_{};  // [DC, AC][number]
};

}  // namespace

bool is_jpeg(std::string_view bytes) { return bytes.starts_with("\xFF\xD8\xFF"); }

ImageSize check_jpeg(std::string_view bytes, const std::string& name, int& orientation) {
  JpegWalk walk(bytes, name);
  const ImageSize size = walk.run();
  orientation = walk.orientation();
  return size;
}

}  // namespace convoy::data
