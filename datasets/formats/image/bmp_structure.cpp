// The structure of BMP files: a file header of 14 bytes, an information header that starts with its own
// length, and rows padded to 4 bytes.
#include "convoy/datasets/formats/image/byte_reader.h"
#include "convoy/datasets/formats/image/image_structure.h"

namespace convoy::data {

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

}  // namespace convoy::data
