#include "convoy/apps/train/report/samples.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "convoy/engine/io/checkpoint.h"
#include "convoy/kernels/base/check.h"

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_image_write.h>
#pragma GCC diagnostic pop

namespace convoy {
namespace {

constexpr std::int64_t kSide = 8;        // images per side of the grid
constexpr std::int64_t kGap = 2;         // pixels between images
constexpr std::int64_t kMinPixels = 64;  // smaller images are enlarged by a whole factor

std::uint8_t pixel_value(float normalized, const kernels::AugmentOptions& augment, std::size_t channel) {
  const float value = normalized / augment.inverse_std[channel] + augment.mean[channel];
  return static_cast<std::uint8_t>(std::clamp(std::lround(value * 255), 0L, 255L));
}

}  // namespace

void write_samples(const std::filesystem::path& path, const data::ImageSet& train,
                   data::LoaderOptions options) {
  options.global_batch = std::min(kSide * kSide, train.size());
  options.micro_batch = 0;
  options.workers = 0;
  options.dtype = DType::f32;
  data::DataLoader loader(train, options);
  const data::Batch batch = loader.next_step().front();
  const std::vector<float> images = batch.images.to_vector<float>();

  const std::int64_t height = batch.images.size(1), width = batch.images.size(2),
                     channels = batch.images.size(3);
  const std::int64_t zoom = std::max<std::int64_t>(1, kMinPixels / std::max(height, width));
  const std::int64_t cell_height = height * zoom + kGap, cell_width = width * zoom + kGap;
  const std::int64_t total_height = kSide * cell_height, total_width = kSide * cell_width;
  std::vector<std::uint8_t> grid(static_cast<std::size_t>(total_height * total_width * channels), 255);
  for (std::int64_t n = 0; n < batch.images.size(0); ++n)
    for (std::int64_t y = 0; y < height * zoom; ++y)
      for (std::int64_t x = 0; x < width * zoom; ++x)
        for (std::int64_t c = 0; c < channels; ++c) {
          const std::int64_t from = ((n * height + y / zoom) * width + x / zoom) * channels + c;
          const std::int64_t row = n / kSide * cell_height + y, column = n % kSide * cell_width + x;
          grid[static_cast<std::size_t>((row * total_width + column) * channels + c)] = pixel_value(
              images[static_cast<std::size_t>(from)], options.transform.augment, static_cast<std::size_t>(c));
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

}  // namespace convoy
