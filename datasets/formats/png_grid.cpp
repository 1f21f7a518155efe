#include "convoy/datasets/formats/png_grid.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_easy_font.h>
#include <stb/stb_image_write.h>
#pragma GCC diagnostic pop

namespace convoy::data {
namespace {

constexpr std::int64_t kGap = 2;         // pixels behind each image
constexpr std::int64_t kMinPixels = 64;  // smaller images are enlarged

/// Calls set(y, x) for each pixel of a text of at most `width` pixels.
template <class Set>
void draw_text(const std::string& utf8, std::int64_t width, Set&& set) {
  struct Vertex {
    float x, y, z;
    std::array<unsigned char, 4> color;
  };
  std::string text;
  for (const char c : utf8)
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) text += ' ' <= c && c <= '~' ? c : '?';
  while (!text.empty() && stb_easy_font_width(text.data()) > width) text.pop_back();
  std::vector<Vertex> vertices(4 * 24 * text.size() + 4);  // a glyph has at most 24 rectangles
  const int rectangles = stb_easy_font_print(0, 1, text.data(), nullptr, vertices.data(),
                                             static_cast<int>(vertices.size() * sizeof(Vertex)));
  for (int i = 0; i < rectangles; ++i) {  // of at most 12 rows, as a line of the font
    const Vertex &first = vertices[static_cast<std::size_t>(4 * i)],
                 &opposite = vertices[static_cast<std::size_t>(4 * i + 2)];
    for (auto y = static_cast<std::int64_t>(first.y); y < static_cast<std::int64_t>(opposite.y); ++y)
      for (auto x = static_cast<std::int64_t>(first.x); x < static_cast<std::int64_t>(opposite.x); ++x)
        set(y, x);
  }
}

}  // namespace

void write_png_grid(const std::filesystem::path& path, const Tensor& images, std::int64_t columns,
                    const std::vector<std::string>& captions) {
  const Shape& shape = images.shape();
  check(shape.rank() == 4 && shape.numel() > 0 && shape[3] <= 4 && images.dtype() == DType::f32,
        "write_png_grid: found images {} {}, expected f32 [N, H, W, 1 to 4]", to_string(images.dtype()),
        shape.text());
  check(columns > 0, "write_png_grid: found {} columns, expected at least 1", columns);
  check(captions.empty() || std::ssize(captions) == shape[0],
        "write_png_grid: found {} captions of {} images, expected one per image, or none", captions.size(),
        shape[0]);
  const std::vector<float> values = images.to_vector<float>();
  const std::int64_t height = shape[1], width = shape[2], channels = shape[3];
  const std::int64_t zoom = std::max<std::int64_t>(1, kMinPixels / std::max(height, width));
  const std::int64_t cell_height = height * zoom + kGap + (captions.empty() ? 0 : kCaptionHeight),
                     cell_width = width * zoom + kGap;
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
              static_cast<std::uint8_t>(
                  std::clamp(std::lround(values[static_cast<std::size_t>(from)] * 255), 0L, 255L));
        }
  for (std::int64_t n = 0; n < std::ssize(captions); ++n)
    draw_text(captions[static_cast<std::size_t>(n)], width * zoom, [&](std::int64_t y, std::int64_t x) {
      const std::int64_t row = n / columns * cell_height + height * zoom + y;
      std::fill_n(
          &grid[static_cast<std::size_t>((row * total_width + n % columns * cell_width + x) * channels)],
          channels == 2 || channels == 4 ? channels - 1 : channels, std::uint8_t{0});
    });

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
