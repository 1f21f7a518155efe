// Image, gzip and tar files in memory, whole and hostile, for tests of readers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace convoy::testing {

/// pixels: [height, width, channels], channels 1 to 4 (JPEG: 1 or 3; BMP: 3 or 4).
struct Picture {
  int width = 0, height = 0, channels = 0;
  std::vector<std::uint8_t> pixels;

  /// The same value everywhere.
  static Picture plain(int width, int height, int channels, std::uint8_t value);
  /// Every pixel different from its neighbours, smooth enough for JPEG.
  static Picture ramp(int width, int height, int channels);
};
std::string png(const Picture& picture);
std::string bmp(const Picture& picture);
std::string jpeg(const Picture& picture, int quality = 95);

/// One chunk of a PNG with its checksum.
std::string png_chunk(std::string_view type, std::string_view data);
/// A PNG from its parts, whether they fit together or not; `rows` as they are before compression, filter
/// bytes included. color: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA. `extra`: chunks between IHDR
/// and IDAT.
std::string raw_png(std::uint32_t width, std::uint32_t height, int depth, int color, std::string_view rows,
                    std::string_view extra = {});

std::string big32(std::uint32_t value);
std::string zlib_stream(std::string_view bytes);
std::string gzip(std::string_view bytes);
/// Members in order: path and content.
void write_tar_gz(const std::filesystem::path& file,
                  const std::vector<std::pair<std::string, std::string>>& members);

}  // namespace convoy::testing
