// Decoding of image files to RGB pixels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convoy::data {

// ---- Structural checks before decoding ----
//
// stb_image does not check some of its input (checksums, missing rows), and would return invented pixels for a
// damaged file. The checks of JPEG files limit what libjpeg-turbo, which checks its input itself, has to do.

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
bool is_heif(std::string_view bytes);  // HEIC, not AVIF

/// Finds all segments up to the end marker and returns the image size. Sets `orientation` to that of the first EXIF
/// data, 1 to 8. Throws DataError if the file ends too early, has no image or more than 100 scans.
ImageSize check_jpeg(std::string_view bytes, const std::string& name, int& orientation);
/// Checks all chunks up to IEND, with their checksums, and returns the image size. Sets `orientation` to that
/// of the EXIF data if there are any. Throws DataError on failure.
ImageSize check_png(std::string_view bytes, const std::string& name, int& orientation);
/// Checks that the file contains all rows and returns the image size. Throws DataError on failure.
ImageSize check_bmp(std::string_view bytes, const std::string& name);

/// Checks the width and height that a header gives, and returns them. `max_per_byte` is the largest number of
/// pixels that the format can store in one byte, so that a small file cannot request much memory. Throws
/// DataError if a side or the number of pixels is out of range.
ImageSize check_image_size(std::int64_t width, std::int64_t height, std::int64_t max_per_byte,
                           std::string_view bytes, const std::string& name);

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
/// composited on white. The orientation that EXIF data (of JPEG, PNG and WebP) give is applied.
/// JPEG images of four components are CMYK, or YCCK if Adobe's segment says so, with inverted inks. An image whose
/// short side will be resized to `side` pixels may be reduced as jpeg_reduction() says; 0 decodes all pixels.
/// Throws DataError, which starts with `name`, if the image is damaged or of another format.
Pixels decode_rgb(std::string_view bytes, const std::string& name, std::int64_t side = 0);

/// Returns the factor, 1, 2, 4 or 8, by which the sides of a JPEG image are divided while it is decoded: the
/// largest that leaves at least `side` pixels of the short side. 1 if `side` is 0.
int jpeg_reduction(ImageSize size, std::int64_t side);

/// Returns what decodes JPEG images: "libjpeg-turbo 2.1.5". Pixels of two versions may differ by rounding.
std::string jpeg_decoder_text();

/// Returns whether the build reads WebP images, with libwebp.
bool reads_webp();
/// Returns whether the build reads HEIC images, with libheif.
bool reads_heif();

/// Decodes a WebP image. Throws DataError if it is damaged or animated, or if the build has no libwebp.
/// Thread-safe.
Samples decode_with_libwebp(std::string_view bytes, const std::string& name);
/// Decodes the primary image of a HEIC file, and turns it as the file says. Throws DataError if it is damaged, or if the
/// build has no libheif. Thread-safe.
Samples decode_with_libheif(std::string_view bytes, const std::string& name);

/// Decodes a JPEG image of the given size with libjpeg-turbo, with its sides divided by `reduction` (1, 2, 4
/// or 8) and rounded up. Does not apply the orientation. Throws DataError if the image is damaged or has another size.
/// Thread-safe.
Pixels decode_with_libjpeg(std::string_view bytes, const std::string& name, ImageSize size,
                           int reduction = 1);

/// Decodes a PNG or BMP image of the given size with stb_image, and returns `channels` (1 to 4) bytes per pixel.
/// Allocations of more than `max_bytes` fail, so that a stream that is larger than its header claims cannot
/// exhaust the memory. Throws DataError if decoding fails. Thread-safe.
std::vector<std::uint8_t> decode_with_stb(std::string_view bytes, const std::string& name, ImageSize size,
                                          std::size_t max_bytes, int& channels);

// ---- The orientation of photographs (EXIF 2.3, tag 274) ----

/// Returns the orientation, 1 to 8, in the first directory of EXIF data, which may begin with "Exif" and two zeros, and
/// have the form of a TIFF file. Returns 1, upright, if there is none, or if the directory is damaged: a photograph with
/// damaged metadata is still a photograph. Reads nothing outside `exif`.
int orientation_of_exif(std::string_view exif);
/// Does the same for a WebP file, from its EXIF chunk.
int orientation_of_webp(std::string_view bytes);

/// Returns the image with the pixels moved such that an image of `orientation` (1 to 8) is upright.
/// Orientations 5 to 8 exchange width and height.
Pixels upright(Pixels pixels, int orientation);

}  // namespace convoy::data
