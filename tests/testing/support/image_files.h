// Image, gzip and tar files, valid and malformed, for tests of readers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace convoy::testing {

/// An image with 1 to 4 channels (JPEG: 1 or 3; BMP: 3 or 4). `pixels` is [height, width, channels].
struct Picture {
  int width = 0, height = 0, channels = 0;
  std::vector<std::uint8_t> pixels;

  /// Returns an image with `value` in every pixel and channel.
  static Picture plain(int width, int height, int channels, std::uint8_t value);
  /// Returns an image in which adjacent pixels differ, smooth enough for JPEG.
  static Picture ramp(int width, int height, int channels);
};
/// Return the bytes of an image file.
std::string png(const Picture& picture);
std::string bmp(const Picture& picture);
std::string jpeg(const Picture& picture, int quality = 95);

/// Returns a HEIC file of 16x8 pixels that heif-enc 1.15 has made: the left half is about 250 20 20, the right one 20 20
/// 250.
std::string heic();
/// Returns a WebP file, lossless, of 3x2 pixels: RGBA 10 20 30 255, 200 100 50 255, 0 255 0 255, 255 0 0 51,
/// 0 0 255 0, 9 8 7 255.
std::string webp();

/// An entry of a directory of EXIF data with one value. `type` is 3 for a number of 2 bytes, and 4 for one of 4
/// bytes.
struct TiffEntry {
  int tag, type;
  std::uint32_t value;
};
/// Returns EXIF data without "Exif": the header of a TIFF file and its only directory.
std::string tiff_directory(const std::vector<TiffEntry>& entries, bool big_endian);

/// Returns one PNG chunk with its checksum.
std::string png_chunk(std::string_view type, std::string_view data);
/// Returns a PNG assembled from its fields, which need not be consistent. `rows` is the uncompressed data,
/// filter bytes included. `color` is 0 for gray, 2 for RGB, 3 for palette, 4 for gray and alpha, 6 for RGBA.
/// `extra` holds chunks to insert between IHDR and IDAT.
std::string raw_png(std::uint32_t width, std::uint32_t height, int depth, int color, std::string_view rows,
                    std::string_view extra = {});

/// Returns `value` as 4 bytes in big-endian order.
std::string big32(std::uint32_t value);
/// Return `bytes` compressed in the zlib or gzip format.
std::string zlib_stream(std::string_view bytes);
std::string gzip(std::string_view bytes);
/// Writes a .tar.gz file. `members` holds the path and the content of each member, in order.
void write_tar_gz(const std::filesystem::path& file,
                  const std::vector<std::pair<std::string, std::string>>& members);

}  // namespace convoy::testing
