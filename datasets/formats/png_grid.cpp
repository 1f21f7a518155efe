#include "convoy/datasets/formats/png_grid.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_image_write.h>
#pragma GCC diagnostic pop

namespace convoy::data {
namespace {

constexpr std::int64_t kGap = 2;         // pixels behind each image
constexpr std::int64_t kMinPixels = 64;  // smaller images are enlarged

std::uint8_t pixel_value(float value) {
  return static_cast<std::uint8_t>(std::clamp(std::lround(value * 255), 0L, 255L));
}

}  // namespace

void write_png_grid(const std::filesystem::path& path, const Tensor& images, std::int64_t columns) {
  const Shape& shape = images.shape();
  check(shape.rank() == 4 && shape.numel() > 0 && shape[3] <= 4 && images.dtype() == DType::f32,
        "write_png_grid: found images {} {}, expected f32 [N, H, W, 1 to 4]", to_string(images.dtype()),
        shape.text());
  check(columns > 0, "write_png_grid: found {} columns, expected at least 1", columns);
  const std::vector<float> values = images.to_vector<float>();
  const std::int64_t height = shape[1], width = shape[2], channels = shape[3];
  const std::int64_t zoom = std::max<std::int64_t>(1, kMinPixels / std::max(height, width));
  const std::int64_t cell_height = height * zoom + kGap, cell_width = width * zoom + kGap;
  const std::int64_t total_height = (shape[0] + columns - 1) / columns * cell_height;
  const std::int64_t total_width = columns * cell_width;
  std::vector<std::uint8_t> grid(static_cast<std::size_t>(total_height * total_width * channels), 255);
  for (std::int64_t n = 0; n < shape[0]; ++n)
    for (std::int64_t y = 0; y < height * zoom; ++y)
      for (std::int64_t x = 0; x < width * zoom; ++x)
        for (std::int64_t c = 0; c < channels; ++c) {
          const std::int64_t from = ((n * height + y / zoom) * width + x / zoom) * channels + c;
          const std::int64_t row = n / columns * cell_height + y, column = n % columns * cell_width + x;
          grid[static_cast<std::size_t>((row * total_width + column) * channels + c)] =
              pixel_value(values[static_cast<std::size_t>(from)]);
        }

  std::string png;
  const auto append = [](void* out, void* bytes, int count) {
    static_cast<std::string*>(out)->append(static_cast<const char*>(bytes), static_cast<std::size_t>(count));
  };
  const int written = stbi_write_png_to_func(append, &png, static_cast<int>(total_width),
                                             static_cast<int>(total_height), static_cast<int>(channels),
                                             grid.data(), static_cast<int>(total_width * channels));
  if (written == 0) fail<OutputError>("{}: cannot encode the image as PNG", path.string());
  io::write_file_atomically(path, png);
}

}  // namespace convoy::data
