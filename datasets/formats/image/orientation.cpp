#include "convoy/datasets/formats/image/orientation.h"

#include <algorithm>
#include <optional>

namespace convoy::data {
namespace {

/// Numbers at any position of untrusted bytes in either byte order; nullopt beyond the end.
class TiffNumbers {
 public:
  explicit TiffNumbers(std::string_view bytes) : bytes_(bytes), is_big_(bytes.starts_with("MM")) {}

  std::optional<std::size_t> at(std::size_t position, std::size_t size) const {
    if (position > bytes_.size() || size > bytes_.size() - position) return std::nullopt;
    std::size_t value = 0;
    for (std::size_t i = 0; i < size; ++i)
      value = value << 8 | static_cast<std::uint8_t>(bytes_[position + (is_big_ ? i : size - 1 - i)]);
    return value;
  }

 private:
  std::string_view bytes_;
  bool is_big_;
};

}  // namespace

int orientation_of_tiff(std::string_view tiff) {
  constexpr std::size_t kTag = 274, kShort = 3, kEntryBytes = 12;
  const TiffNumbers numbers(tiff);
  if (!(tiff.starts_with("II") || tiff.starts_with("MM")) || numbers.at(2, 2) != 42u) return 1;
  const auto directory = numbers.at(4, 4);
  const auto count = directory ? numbers.at(*directory, 2) : std::nullopt;
  for (std::size_t i = 0; count && i < *count; ++i) {
    const std::size_t entry = *directory + 2 + i * kEntryBytes;
    const auto tag = numbers.at(entry, 2);
    if (!tag) return 1;
    if (*tag != kTag) continue;
    const auto value = numbers.at(entry + 8, 2);
    const bool is_valid = numbers.at(entry + 2, 2) == kShort && numbers.at(entry + 4, 4) == 1u && value &&
                          *value >= 1 && *value <= 8;
    return is_valid ? static_cast<int>(*value) : 1;
  }
  return 1;
}

Pixels upright(Pixels pixels, int orientation) {
  if (orientation <= 1 || orientation > 8) return pixels;
  const bool swaps = orientation >= 5;
  const bool flips_rows = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool flips_columns = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const auto [width, height] = pixels.size;
  Pixels result{
      .size = swaps ? ImageSize{height, width} : pixels.size, .rgb = {}, .is_reduced = pixels.is_reduced};
  result.rgb.resize(pixels.rgb.size());
  std::uint8_t* out = result.rgb.data();
  for (std::int64_t y = 0; y < result.size.height; ++y)
    for (std::int64_t x = 0; x < result.size.width; ++x, out += 3) {
      const std::int64_t row = swaps ? x : y, column = swaps ? y : x;
      const std::int64_t from_row = flips_rows ? height - 1 - row : row;
      const std::int64_t from_column = flips_columns ? width - 1 - column : column;
      std::copy_n(&pixels.rgb[static_cast<std::size_t>((from_row * width + from_column) * 3)], 3, out);
    }
  return result;
}

}  // namespace convoy::data
