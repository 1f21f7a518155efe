#include <algorithm>
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

ImageSize check_structure(std::string_view bytes, const std::string& name, int& orientation) {
  if (bytes.empty()) fail<DataError>("{}: empty, expected a {} image", name, image_formats_text());
  if (is_jpeg(bytes)) return check_jpeg(bytes, name, orientation);
  if (is_png(bytes)) return check_png(bytes, name, orientation);
  if (is_bmp(bytes)) return check_bmp(bytes, name);
  fail<DataError>("{}: unknown format, expected a {} image", name, image_formats_text());
}

/// Returns the size in bytes of the largest block that decoding may allocate: 4 channels of 16 bits, doubled
/// because stb_image grows the rows of an interlaced PNG by doubling. A row has one byte more, its filter.
std::size_t max_decoder_bytes(ImageSize size, std::size_t file_bytes) {
  const auto padded = static_cast<std::size_t>((size.width + 1) * size.height);
  return 2 * 8 * padded + 2 * file_bytes + (std::size_t{64} << 10);  // and fixed tables
}

/// Composites a value on white: returns v a + 255 (1 - a), rounded, with alpha = 255 a.
std::uint8_t on_white(int value, int alpha) {
  return static_cast<std::uint8_t>((value * alpha + 255 * (255 - alpha) + 127) / 255);
}

/// Converts 1 to 4 channels to RGB.
Pixels to_rgb(Samples samples) {
  if (samples.channels == 3) return {.size = samples.size, .rgb = std::move(samples.values)};
  const ImageSize size = samples.size;
  Pixels pixels{.size = size, .rgb = {}};
  pixels.rgb.resize(static_cast<std::size_t>(size.width * size.height * 3));
  const bool grey = samples.channels <= 2;
  const bool has_alpha = samples.channels == 2 || samples.channels == 4;
  const std::uint8_t* in = samples.values.data();
  for (std::size_t at = 0; at < pixels.rgb.size(); at += 3, in += samples.channels)
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint8_t value = in[grey ? 0 : c];
      pixels.rgb[at + c] = has_alpha ? on_white(value, in[samples.channels - 1]) : value;
    }
  return pixels;
}

/// A format of image files, and the extensions of their names.
struct Format {
  const char* name;
  std::vector<std::string> extensions;
};

/// Returns the formats that this build reads.
const std::vector<Format>& formats() {
  static const std::vector<Format> known = [] {
    std::vector<Format> all = {{"JPEG", {".jpg", ".jpeg"}}, {"PNG", {".png"}}, {"BMP", {".bmp"}}};
    if (reads_webp()) all.push_back({"WebP", {".webp"}});
    if (reads_heif()) all.push_back({"HEIC", {".heic", ".heif"}});
    return all;
  }();
  return known;
}

}  // namespace

std::string image_formats_text() {
  const std::vector<Format>& known = formats();
  std::string text;
  for (std::size_t i = 0; i < known.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == known.size() ? " or " : ", ", known[i].name);
  return text;
}

bool is_image_name(const std::filesystem::path& file) {
  const std::string extension = lower_case(file.extension().string());
  for (const Format& format : formats())
    if (std::ranges::find(format.extensions, extension) != format.extensions.end()) return true;
  return false;
}

ImageSize check_image_size(std::int64_t width, std::int64_t height, std::int64_t max_per_byte,
                           std::string_view bytes, const std::string& name) {
  if (width < 1 || width > kMaxSide || height < 1 || height > kMaxSide || width * height > kMaxPixels)
    fail<DataError>("{}: {} x {} pixels, expected sides of 1 to {} and at most {} pixels", name, width,
                    height, kMaxSide, kMaxPixels);
  if (width * height / max_per_byte > static_cast<std::int64_t>(bytes.size()))
    fail<DataError>("{}: {} x {} pixels cannot be stored in {} bytes", name, width, height, bytes.size());
  return {width, height};
}

bool is_webp(std::string_view bytes) {
  return bytes.starts_with("RIFF") && bytes.size() >= 12 && bytes.substr(8).starts_with("WEBP");
}

bool is_heif(std::string_view bytes) {
  if (bytes.size() < 12 || bytes.substr(4, 4) != "ftyp") return false;
  for (const std::string_view brand : {"heic", "heix", "heim", "heis", "mif1"})
    if (bytes.substr(8, 4) == brand) return true;
  return false;
}

int jpeg_reduction(ImageSize size, std::int64_t side) {
  int reduction = 1;
  while (side > 0 && reduction < 8 && std::min(size.width, size.height) >= 2 * reduction * side)
    reduction *= 2;
  return reduction;
}

Pixels decode_rgb(std::string_view bytes, const std::string& name, std::int64_t side) {
  if (is_heif(bytes)) return to_rgb(decode_with_libheif(bytes, name));
  if (is_webp(bytes)) return upright(to_rgb(decode_with_libwebp(bytes, name)), orientation_of_webp(bytes));
  int orientation = 1;
  const ImageSize size = check_structure(bytes, name, orientation);
  if (is_jpeg(bytes))
    return upright(decode_with_libjpeg(bytes, name, size, jpeg_reduction(size, side)), orientation);
  Samples samples{.size = size, .values = {}};
  samples.values =
      decode_with_stb(bytes, name, size, max_decoder_bytes(size, bytes.size()), samples.channels);
  return upright(to_rgb(std::move(samples)), orientation);
}

Tensor decode_image(const std::string& bytes, const std::string& name, int size) {
  check_image_side(size);
  const Pixels pixels = decode_rgb(bytes, name, size);
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
