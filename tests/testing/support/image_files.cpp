#include "tests/testing/support/image_files.h"

#include <archive.h>
#include <archive_entry.h>
#include <zlib.h>
#include <charconv>

#include <memory>
#include <stdexcept>

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STBI_WRITE_NO_STDIO
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_image_write.h>
#pragma GCC diagnostic pop

namespace convoy::testing {
namespace {

void append(void* context, void* data, int size) {
  static_cast<std::string*>(context)->append(static_cast<const char*>(data), static_cast<std::size_t>(size));
}

std::string deflated(std::string_view bytes, int window_bits) {
  z_stream stream{};
  if (deflateInit2(&stream, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflateInit2 failed");
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in =
      reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));  // zlib does not modify the input
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

void expect_ok(int result, archive* writer) {
  if (result != ARCHIVE_OK) throw std::runtime_error(archive_error_string(writer));
}

}  // namespace

Picture Picture::plain(int width, int height, int channels, std::uint8_t value) {
  return {width, height, channels,
          std::vector<std::uint8_t>(static_cast<std::size_t>(width * height * channels), value)};
}

Picture Picture::ramp(int width, int height, int channels) {
  Picture picture = plain(width, height, channels, 0);
  std::size_t at = 0;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        picture.pixels[at++] = static_cast<std::uint8_t>(20 + 3 * x + 5 * y + 40 * c);
  return picture;
}

std::string png(const Picture& picture) {
  std::string bytes;
  stbi_write_png_to_func(append, &bytes, picture.width, picture.height, picture.channels,
                         picture.pixels.data(), picture.width * picture.channels);
  return bytes;
}

std::string bmp(const Picture& picture) {
  std::string bytes;
  stbi_write_bmp_to_func(append, &bytes, picture.width, picture.height, picture.channels,
                         picture.pixels.data());
  return bytes;
}

std::string jpeg(const Picture& picture, int quality) {
  std::string bytes;
  stbi_write_jpg_to_func(append, &bytes, picture.width, picture.height, picture.channels,
                         picture.pixels.data(), quality);
  return bytes;
}

std::string tiff_directory(const std::vector<TiffEntry>& entries, bool big_endian) {
  const auto number = [&](std::uint32_t value, int size) {
    std::string bytes;
    for (int i = 0; i < size; ++i) bytes += static_cast<char>(value >> (8 * (big_endian ? size - 1 - i : i)));
    return bytes;
  };
  std::string bytes = (big_endian ? "MM" : "II") + number(42, 2) + number(8, 4);
  bytes += number(static_cast<std::uint32_t>(entries.size()), 2);
  for (const TiffEntry& entry : entries) {
    const int size = entry.type == 3 ? 2 : 4;
    bytes +=
        number(static_cast<std::uint32_t>(entry.tag), 2) + number(static_cast<std::uint32_t>(entry.type), 2);
    bytes += number(1, 4) + number(entry.value, size) + std::string(static_cast<std::size_t>(4 - size), '\0');
  }
  return bytes + number(0, 4);  // no other directory
}

std::string heic() {
  constexpr std::string_view kHex =
      "0000001c6674797068656963000000006d696631686569636d696166000001ae6d657461000000000000002168646c72"
      "000000000000000070696374000000000000000000000000000000000e7069746d000000000002000000106964617400"
      "0000000010000800000038696c6f630100000044400002000100000000000001d20001000000000000004b0002000100"
      "0000000000000100000000000000080000003869696e6600000000000200000015696e66650200000100010000687663"
      "310000000015696e666502000000000200006772696400000000d969707270000000b76970636f000000776876634301"
      "04080000000000000000001ef000fcfff8f800000f03200001001740010c01ffff0408000003009e3800000300001eba"
      "0240210001002a4201010408000003009e3800000300001e90041020b2dd55d35cdc0808181000000300100000030010"
      "8022000100084401c1731830189000000014697370650000000000000040000000400000001469737065000000000000"
      "001000000008000000107069786900000000030808080000001a69706d61000000000000000200010281020002020384"
      "0000001a69726566000000000000000e64696d67000200010001000000536d646174000000472801af09c869861a2399"
      "9f3fcb7ffcb7c851158ffbc115c9947dbf9a7dbcdab41fcbefb1cc6fcb2e6d7573e29f3e80fe8b5ad42b5845e7800c19"
      "0484a0294581554cea4ba5f9c0";
  std::string bytes;
  for (std::size_t i = 0; i < kHex.size(); i += 2) {
    unsigned byte = 0;
    std::from_chars(kHex.data() + i, kHex.data() + i + 2, byte, 16);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

std::string webp() {
  constexpr unsigned char kBytes[] = {
      0x52, 0x49, 0x46, 0x46, 0x4e, 0x00, 0x00, 0x00, 0x57, 0x45, 0x42, 0x50, 0x56, 0x50, 0x38,
      0x4c, 0x41, 0x00, 0x00, 0x00, 0x2f, 0x02, 0x40, 0x00, 0x10, 0x2f, 0xa0, 0xa8, 0x6d, 0x1b,
      0xa8, 0xfd, 0x9d, 0xe0, 0xc6, 0x9f, 0xcc, 0x68, 0x90, 0x49, 0xdb, 0xb4, 0x6f, 0xfd, 0xeb,
      0x99, 0xb5, 0xa9, 0x09, 0x40, 0x80, 0xe1, 0x52, 0x60, 0xf5, 0x4f, 0x8a, 0x20, 0xdb, 0xa6,
      0x50, 0xf3, 0x27, 0xb8, 0xd3, 0x03, 0xdc, 0xc3, 0xf3, 0x48, 0x69, 0x73, 0x6e, 0x06, 0x82,
      0x6c, 0xdb, 0xd0, 0xb6, 0x2b, 0x3e, 0xa2, 0xff, 0x71, 0x1b, 0x00};
  return {std::begin(kBytes), std::end(kBytes)};
}

std::string big32(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

std::string png_chunk(std::string_view type, std::string_view data) {
  const std::string body = std::string(type) + std::string(data);
  const auto sum = crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big32(static_cast<std::uint32_t>(data.size())) + body + big32(static_cast<std::uint32_t>(sum));
}

std::string raw_png(std::uint32_t width, std::uint32_t height, int depth, int color, std::string_view rows,
                    std::string_view extra) {
  std::string header = big32(width) + big32(height);
  header += static_cast<char>(depth);
  header += static_cast<char>(color);
  header.append(3, '\0');  // deflate, adaptive filters, not interlaced
  return "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + std::string(extra) +
         png_chunk("IDAT", zlib_stream(rows)) + png_chunk("IEND", "");
}

std::string zlib_stream(std::string_view bytes) { return deflated(bytes, MAX_WBITS); }
std::string gzip(std::string_view bytes) { return deflated(bytes, 16 + MAX_WBITS); }

void write_tar_gz(const std::filesystem::path& file,
                  const std::vector<std::pair<std::string, std::string>>& members) {
  const std::unique_ptr<archive, int (*)(archive*)> writer(archive_write_new(), archive_write_free);
  expect_ok(archive_write_add_filter_gzip(writer.get()), writer.get());
  expect_ok(archive_write_set_filter_option(writer.get(), "gzip", "compression-level", "1"), writer.get());
  expect_ok(archive_write_set_format_pax_restricted(writer.get()), writer.get());
  expect_ok(archive_write_open_filename(writer.get(), file.c_str()), writer.get());
  for (const auto& [path, content] : members) {
    const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(),
                                                                         archive_entry_free);
    archive_entry_set_pathname(entry.get(), path.c_str());
    archive_entry_set_size(entry.get(), static_cast<la_int64_t>(content.size()));
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0644);
    expect_ok(archive_write_header(writer.get(), entry.get()), writer.get());
    if (archive_write_data(writer.get(), content.data(), content.size()) !=
        static_cast<la_ssize_t>(content.size()))
      throw std::runtime_error(archive_error_string(writer.get()));
  }
  expect_ok(archive_write_close(writer.get()), writer.get());
}

}  // namespace convoy::testing
