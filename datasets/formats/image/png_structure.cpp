// The structure of PNG files (ISO/IEC 15948). A chunk is a big-endian length, a type of four letters, data,
// and the CRC of type and data.
#include <zlib.h>

#include "convoy/datasets/formats/image/byte_reader.h"
#include "convoy/datasets/formats/image/image_structure.h"

namespace convoy::data {
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

ImageSize check_png(std::string_view bytes, const std::string& name) {
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
  }
  return size;
}

}  // namespace convoy::data
