// Decoding of image files to RGB pixels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/datasets/formats/image/image_structure.h"

namespace convoy::data {

/// A decoded image.
struct Pixels {
  ImageSize size;
  std::vector<std::uint8_t> rgb;  // [height, width, 3]
  bool is_reduced = false;        // whether the stored image is larger
};

inline constexpr std::uint64_t kMaxImageFileBytes = std::uint64_t{512} << 20;

/// An image as it is stored.
struct Samples {
  ImageSize size;
  int channels = 3;                  // gray, gray and alpha, RGB, or RGB and alpha
  std::vector<std::uint8_t> values;  // [height, width, channels]
};

/// Decodes an image of one of the formats in image_formats_text(), which is recognized by its first bytes.
/// Gray becomes three equal channels, 16-bit channels are reduced to their upper 8 bits, and alpha is
/// composited on white. The orientation that a JPEG (EXIF) or TIFF file gives is applied. An image whose
/// short side will be resized to `side` pixels may be reduced as jpeg_reduction() says; 0 decodes all pixels.
/// Throws DataError, which starts with `name`, if the image is damaged or of another format.
Pixels decode_rgb(std::string_view bytes, const std::string& name, std::int64_t side = 0);

/// Returns the factor, 1, 2, 4 or 8, by which the sides of a JPEG image are divided while it is decoded: the
/// largest that leaves at least `side` pixels of the short side. 1 if `side` is 0.
int jpeg_reduction(ImageSize size, std::int64_t side);

/// Returns what decodes JPEG images of 1 or 3 components: "libjpeg-turbo 2.1.5" or "stb_image". Pixels of the
/// two differ by rounding, and those of images that are resized also because stb_image does not reduce them.
std::string jpeg_decoder_text();

/// Returns whether the build reads WebP images, with libwebp.
bool reads_webp();
/// Returns whether the build reads TIFF images, with libtiff.
bool reads_tiff();

/// Decodes a WebP image. Throws DataError if it is damaged or animated, or if the build has no libwebp.
/// Thread-safe.
Samples decode_with_libwebp(std::string_view bytes, const std::string& name);
/// Decodes the first image of a TIFF file, composites alpha on white and applies the orientation. Throws
/// DataError if it is damaged, or if the build has no libtiff. Thread-safe.
Pixels decode_with_libtiff(std::string_view bytes, const std::string& name);

/// Decodes a JPEG image of the given size with libjpeg-turbo, with its sides divided by `reduction` (1, 2, 4
/// or 8) and rounded up. Does not apply the orientation. Returns an empty optional if the build has no
/// libjpeg-turbo, or if the image has neither 1 nor 3 components. Throws DataError if the image is damaged.
/// Thread-safe.
std::optional<Pixels> decode_with_libjpeg(std::string_view bytes, const std::string& name, ImageSize size,
                                          int reduction = 1);

/// Decodes an image of the given size with stb_image, and returns `channels` (1 to 4) bytes per pixel.
/// Allocations of more than `max_bytes` fail, so that a stream that is larger than its header claims cannot
/// exhaust the memory. Throws DataError if decoding fails. Thread-safe.
std::vector<std::uint8_t> decode_with_stb(std::string_view bytes, const std::string& name, ImageSize size,
                                          std::size_t max_bytes, int& channels);

}  // namespace convoy::data
