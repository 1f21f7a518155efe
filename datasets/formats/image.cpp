#include <filesystem>
#include <utility>

#include "convoy/datasets/files.h"
#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/transforms/resize.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

constexpr std::int64_t kMaxSide = 65535;  // pixels; JPEG's limit, also applied to PNG and BMP

ImageSize check_structure(std::string_view bytes, const std::string& name) {
  if (bytes.empty()) fail<DataError>("{}: empty, expected a JPEG, PNG or BMP image", name);
  if (is_jpeg(bytes)) return check_jpeg(bytes, name);
  if (is_png(bytes)) return check_png(bytes, name);
  if (is_bmp(bytes)) return check_bmp(bytes, name);
  fail<DataError>("{}: unknown format, expected a JPEG, PNG or BMP image", name);
}

/// Returns the size in bytes of the largest block that decoding may allocate: 4 channels of 16 bits, doubled
/// because stb_image grows the rows of an interlaced PNG by doubling. Sides are rounded up to JPEG's largest
/// unit, 32 pixels.
std::size_t max_decoder_bytes(ImageSize size, std::size_t file_bytes) {
  const auto padded = static_cast<std::size_t>((size.width + 32) * (size.height + 32));
  return 2 * 8 * padded + 2 * file_bytes + (std::size_t{64} << 10);  // and fixed tables
}

/// Composites a value on white: returns v a + 255 (1 - a), rounded, with alpha = 255 a.
std::uint8_t on_white(int value, int alpha) {
  return static_cast<std::uint8_t>((value * alpha + 255 * (255 - alpha) + 127) / 255);
}

}  // namespace

ImageSize check_image_size(std::int64_t width, std::int64_t height, std::int64_t max_per_byte,
                           std::string_view bytes, const std::string& name) {
  if (width < 1 || width > kMaxSide || height < 1 || height > kMaxSide || width * height > kMaxPixels)
    fail<DataError>("{}: {} x {} pixels, expected sides of 1 to {} and at most {} pixels", name, width,
                    height, kMaxSide, kMaxPixels);
  if (width * height / max_per_byte > static_cast<std::int64_t>(bytes.size()))
    fail<DataError>("{}: {} x {} pixels cannot be stored in {} bytes", name, width, height, bytes.size());
  return {width, height};
}

Pixels decode_rgb(std::string_view bytes, const std::string& name) {
  const ImageSize size = check_structure(bytes, name);
  if (is_jpeg(bytes))
    if (auto rgb = decode_with_libjpeg(bytes, name, size)) return {size, std::move(*rgb)};
  int channels = 0;
  std::vector<std::uint8_t> values =
      decode_with_stb(bytes, name, size, max_decoder_bytes(size, bytes.size()), channels);
  if (channels == 3) return {size, std::move(values)};
  Pixels pixels{size, std::vector<std::uint8_t>(static_cast<std::size_t>(size.width * size.height * 3))};
  const bool grey = channels <= 2;
  const bool has_alpha = channels == 2 || channels == 4;
  const std::uint8_t* in = values.data();
  for (std::size_t at = 0; at < pixels.rgb.size(); at += 3, in += channels)
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint8_t value = in[grey ? 0 : c];
      pixels.rgb[at + c] = has_alpha ? on_white(value, in[channels - 1]) : value;
    }
  return pixels;
}

Tensor decode_image(const std::string& bytes, const std::string& name, int size) {
  check_image_side(size);
  const Pixels pixels = decode_rgb(bytes, name);
  const auto [width, height] = pixels.size;
  if (size == 0) return Tensor::from(pixels.rgb, {height, width, 3}, Device::cpu());
  const Tensor image = Tensor::empty({size, size, 3}, DType::u8, Device::cpu());
  resize_to_square({pixels.rgb.data(), height, width, 3}, size, image.view().as<std::uint8_t>());
  return image;
}

Tensor read_image(const std::filesystem::path& file, int size) {
  return decode_image(read_file(file, kMaxImageFileBytes), file.string(), size);
}

}  // namespace convoy::data
