// Augmentation on the CPU: each row of an output image is gathered as bytes, then normalised in one
// vectorised loop.
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/augment_choices.h"
#include "kernels/cpu/map.h"

namespace convoy {
namespace {

/// to[x] = row[columns[x]], pixels of kChannels bytes.
template <int kChannels>
void gather(const std::uint8_t* row, const std::vector<int>& columns, std::uint8_t* to) {
  for (const int column : columns) {
    for (int c = 0; c < kChannels; ++c)
      to[c] = column == kBlack ? std::uint8_t{0} : row[column * kChannels + c];
    to += kChannels;
  }
}

void gather(const std::uint8_t* row, const std::vector<int>& columns, int channels, std::uint8_t* to) {
  switch (channels) {
    case 1: return gather<1>(row, columns, to);
    case 2: return gather<2>(row, columns, to);
    case 3: return gather<3>(row, columns, to);
    case 4: return gather<4>(row, columns, to);
  }
}

/// The statistics repeated over a row of pixels, so that one loop needs no channel index.
template <class T>
class Normalizer {
 public:
  Normalizer(const AugmentOptions& options, int width, int channels) {
    for (int x = 0; x < width; ++x) {
      mean_.insert(mean_.end(), options.mean.begin(), options.mean.begin() + channels);
      inverse_std_.insert(inverse_std_.end(), options.inverse_std.begin(),
                          options.inverse_std.begin() + channels);
    }
  }

  void row(const std::uint8_t* pixels, T* out) const {
    const auto normalized = [](std::uint8_t pixel, T mean, T inverse_std) {
      return normalize_pixel(pixel, mean, inverse_std);
    };
    map_range<Mode::write>(0, std::ssize(mean_), normalized, out, pixels, mean_.data(), inverse_std_.data());
  }

 private:
  std::vector<T> mean_, inverse_std_;
};

/// Images of one size; the scratch memory of one thread.
template <class T>
class Augmenter {
 public:
  Augmenter(const AugmentOptions& options, const Normalizer<T>& normalizer, const Shape& images)
      : options_(options),
        normalizer_(normalizer),
        height_(static_cast<int>(images[1])),
        width_(static_cast<int>(images[2])),
        channels_(static_cast<int>(images[3])),
        columns_(static_cast<std::size_t>(width_)),
        row_(static_cast<std::size_t>(width_ * channels_)) {}

  /// As for evaluation: nothing is drawn, nothing moves.
  void normalize(const std::uint8_t* image, T* out) {
    for (int y = 0; y < height_; ++y) normalizer_.row(image + y * row_size(), out + y * row_size());
  }

  void augment(const std::uint8_t* image, const AugmentChoices& choices, T* out) {
    for (int x = 0; x < width_; ++x)
      columns_[static_cast<std::size_t>(x)] =
          source_index((choices.flip ? width_ - 1 - x : x) - choices.right, width_, options_.reflect);
    for (int y = 0; y < height_; ++y) {
      const int source = source_index(y - choices.down, height_, options_.reflect);
      if (source == kBlack) {
        std::fill(row_.begin(), row_.end(), std::uint8_t{0});
      } else {
        gather(image + source * row_size(), columns_, channels_, row_.data());
      }
      normalizer_.row(row_.data(), out + y * row_size());
    }
    cut_out(choices, out);
  }

 private:
  std::int64_t row_size() const { return std::ssize(row_); }

  void cut_out(const AugmentChoices& choices, T* out) const {
    const int first = std::max(choices.hole_left, 0);
    const int last = std::min(choices.hole_left + options_.cutout, width_);
    for (int y = std::max(choices.hole_top, 0); y < std::min(choices.hole_top + options_.cutout, height_);
         ++y)
      std::fill(out + y * row_size() + first * channels_, out + y * row_size() + last * channels_, T{0});
  }

  const AugmentOptions& options_;
  const Normalizer<T>& normalizer_;
  int height_, width_, channels_;
  std::vector<int> columns_;       // for each column of the output, the image's that it comes from, or kBlack
  std::vector<std::uint8_t> row_;  // of the output, before normalisation
};

}  // namespace

void augment(CpuStream& stream, ConstView images, ConstView rows, ConstView ids,
             const AugmentOptions& options, Random random, View out) {
  const int height = static_cast<int>(images.shape[1]);
  const int width = static_cast<int>(images.shape[2]);
  const int channels = static_cast<int>(images.shape[3]);
  const std::int64_t image_size = std::int64_t{height} * width * channels;
  if (out.numel() == 0) return;
  const std::int64_t grain = std::max<std::int64_t>(1, kElementGrain / image_size);
  const bool draws = options.crop_padding > 0 || options.flip || options.cutout > 0;
  dispatch_compute(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Normalizer<T> normalizer(options, width, channels);
    parallel_for(stream, rows.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      Augmenter<T> augmenter(options, normalizer, images.shape);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint8_t* const image = images.as<std::uint8_t>() + rows.as<std::int32_t>()[i] * image_size;
        T* const to = out.as<T>() + i * image_size;
        if (draws) {
          const auto id = static_cast<std::uint64_t>(ids.as<std::int32_t>()[i]);
          augmenter.augment(image, choose_augmentation(options, random, id, height, width), to);
        } else {
          augmenter.normalize(image, to);
        }
      }
    });
  });
}

}  // namespace convoy
