// What an image file says of itself, checked from end to end before a decoder sees it: stb_image trusts its
// input in places (Huffman tables of more than 256 codes, checksums, missing rows), and a set of images must
// not hold pixels that were made up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace convoy {

inline constexpr std::int64_t kMostPixels = std::int64_t{64} << 20;  // of one image: 192 MiB as RGB

struct ImageSize {
  std::int64_t width = 0, height = 0;
};

bool is_jpeg(std::string_view bytes);
bool is_png(std::string_view bytes);
bool is_bmp(std::string_view bytes);

/// Walks the segments up to the end marker: one frame, tables that fit and stand before the scans that use
/// them, at most 100 scans.
ImageSize check_jpeg(std::string_view bytes, const std::string& name);
/// Walks the chunks up to IEND and compares their checksums.
ImageSize check_png(std::string_view bytes, const std::string& name);
/// Are all rows there that the header promises?
ImageSize check_bmp(std::string_view bytes, const std::string& name);

/// A width and a height as a header gives them. `most_per_byte`: pixels that the format can express in one
/// byte of file at best, so that a small file cannot ask for much memory.
ImageSize check_image_size(std::int64_t width, std::int64_t height, std::int64_t most_per_byte,
                           std::string_view bytes, const std::string& name);

}  // namespace convoy
