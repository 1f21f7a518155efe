// Structural checks of image files before decoding. stb_image does not check some of its input (Huffman
// tables of more than 256 codes, checksums, missing rows), and would return invented pixels for a damaged
// file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace convoy::data {

inline constexpr std::int64_t kMaxPixels = std::int64_t{64} << 20;  // per image; 192 MiB as RGB

/// The size of an image in pixels.
struct ImageSize {
  std::int64_t width = 0, height = 0;
};

/// Return whether the file starts with the signature of the format.
bool is_jpeg(std::string_view bytes);
bool is_png(std::string_view bytes);
bool is_bmp(std::string_view bytes);
bool is_webp(std::string_view bytes);
bool is_tiff(std::string_view bytes);

/// Checks all segments up to the end marker and returns the image size. Sets `orientation` to that of the
/// EXIF data, 1 to 8 (orientation.h). Throws DataError unless there are one frame, at most 100 scans, and
/// valid tables before the scans that use them.
ImageSize check_jpeg(std::string_view bytes, const std::string& name, int& orientation);
/// Checks all chunks up to IEND, with their checksums, and returns the image size. Throws DataError on
/// failure.
ImageSize check_png(std::string_view bytes, const std::string& name);
/// Checks that the file contains all rows and returns the image size. Throws DataError on failure.
ImageSize check_bmp(std::string_view bytes, const std::string& name);

/// Checks the width and height that a header gives, and returns them. `max_per_byte` is the largest number of
/// pixels that the format can store in one byte, so that a small file cannot request much memory. Throws
/// DataError if a side or the number of pixels is out of range.
ImageSize check_image_size(std::int64_t width, std::int64_t height, std::int64_t max_per_byte,
                           std::string_view bytes, const std::string& name);

}  // namespace convoy::data
