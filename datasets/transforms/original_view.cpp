#include "convoy/datasets/transforms/original_view.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "convoy/kernels/shared/augment_choices.h"

namespace convoy::data {
namespace {

/// Copies the region that begins at (top, left), and is black outside the image.
void copy_region(const PixelView& image, std::int64_t top, std::int64_t left, const PixelView& region,
                 std::uint8_t* out) {
  const std::int64_t first = std::clamp<std::int64_t>(-left, 0, region.width);
  const std::int64_t count = std::clamp<std::int64_t>(image.width - left, first, region.width) - first;
  std::fill_n(out, region.height * region.width * 3, std::uint8_t{0});
  for (std::int64_t y = std::max<std::int64_t>(-top, 0); y < std::min(region.height, image.height - top); ++y)
    std::copy_n(image.pixels + ((top + y) * image.width + left + first) * 3, count * 3,
                out + (y * region.width + first) * 3);
}

/// Returns the rotated image at a place, interpolated bilinearly; the edge continues outside.
std::uint8_t interpolate(const PixelView& image, double y, double x, std::int64_t channel) {
  const double row = std::clamp(y - 0.5, 0.0, static_cast<double>(image.height - 1));
  const double column = std::clamp(x - 0.5, 0.0, static_cast<double>(image.width - 1));
  const auto top = static_cast<std::int64_t>(row), left = static_cast<std::int64_t>(column);
  const std::int64_t bottom = std::min(top + 1, image.height - 1),
                     right = std::min(left + 1, image.width - 1);
  const auto at = [&](std::int64_t from_y, std::int64_t from_x) {
    return static_cast<double>(image.pixels[(from_y * image.width + from_x) * 3 + channel]);
  };
  const double u = column - static_cast<double>(left), v = row - static_cast<double>(top);
  return static_cast<std::uint8_t>((1 - v) * ((1 - u) * at(top, left) + u * at(top, right)) +
                                   v * ((1 - u) * at(bottom, left) + u * at(bottom, right)) + 0.5);
}

}  // namespace

std::int64_t OriginalView::needed_side(const Random& random, std::uint64_t id) const {
  constexpr int kSide = 4096;
  const std::int64_t longer = std::max(height_, width_);
  if (options_.min_area == 0) return longer;
  const kernels::ImageBox box = kernels::choose_box(options_.min_area, random, id, kSide, kSide);
  return longer * kSide / std::min(box.height, box.width) + 1;
}

void OriginalView::write(const PixelView& image, const Random& random, std::uint64_t id, std::uint8_t* out) {
  kernels::ImageBox box;
  if (options_.min_area > 0) {
    box = kernels::choose_box(options_.min_area, random, id, static_cast<int>(image.height),
                              static_cast<int>(image.width));
  } else {
    const double scale = std::min(static_cast<double>(image.height) / static_cast<double>(height_),
                                  static_cast<double>(image.width) / static_cast<double>(width_));
    box.height = std::max(1, static_cast<int>(scale * static_cast<double>(height_)));
    box.width = std::max(1, static_cast<int>(scale * static_cast<double>(width_)));
    box.top = (static_cast<int>(image.height) - box.height) / 2;
    box.left = (static_cast<int>(image.width) - box.width) / 2;
  }
  const double angle =
      options_.rotation * std::numbers::pi / 180 * (2 * to_uniform(random.words(id, 16)[0]) - 1);
  // In multiples of 2^-16, so that the last bits of the machine's functions do not matter.
  const double cosine = std::round(std::cos(angle) * 0x1p16) * 0x1p-16,
               sine = std::round(std::sin(angle) * 0x1p16) * 0x1p-16;
  // The rotated box is inside the box with this margin on each side.
  const auto margin = [&](double along, double across) {
    return std::max<std::int64_t>(
        0, std::llround(std::ceil((along * (std::abs(cosine) - 1) + across * std::abs(sine)) / 2)));
  };
  const std::int64_t down = margin(box.height, box.width), right = margin(box.width, box.height);
  PixelView region{nullptr, box.height + 2 * down, box.width + 2 * right, 3};
  region_.resize(static_cast<std::size_t>(region.height * region.width * 3));
  copy_region(image, box.top - down, box.left - right, region, region_.data());
  region.pixels = region_.data();
  if (sine == 0) return resizer_.stretch(region, height_, width_, out);

  const auto scaled = [](std::int64_t side, std::int64_t to, int from) {
    return std::max<std::int64_t>(1, (side * to + from / 2) / from);
  };
  PixelView resized{nullptr, scaled(region.height, height_, box.height),
                    scaled(region.width, width_, box.width), 3};
  resized_.resize(static_cast<std::size_t>(resized.height * resized.width * 3));
  resizer_.stretch(region, resized.height, resized.width, resized_.data());
  resized.pixels = resized_.data();
  const double row_pixels =
      static_cast<double>(box.height) / static_cast<double>(height_);  // of the original image
  const double column_pixels = static_cast<double>(box.width) / static_cast<double>(width_);
  for (std::int64_t y = 0; y < height_; ++y)
    for (std::int64_t x = 0; x < width_; ++x) {
      const double v = (static_cast<double>(y) + 0.5 - static_cast<double>(height_) / 2) * row_pixels;
      const double u = (static_cast<double>(x) + 0.5 - static_cast<double>(width_) / 2) * column_pixels;
      const double from_y = (sine * u + cosine * v) / static_cast<double>(region.height) + 0.5;
      const double from_x = (cosine * u - sine * v) / static_cast<double>(region.width) + 0.5;
      for (std::int64_t c = 0; c < 3; ++c)
        *out++ = interpolate(resized, from_y * static_cast<double>(resized.height),
                             from_x * static_cast<double>(resized.width), c);
    }
}

}  // namespace convoy::data
