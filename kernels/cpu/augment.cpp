// kernels/augment.h on the CPU: each output row is assembled as bytes, then normalized in one loop.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/shared/augment_choices.h"

namespace convoy::kernels {
namespace {

/// Calls f with `channels` (1 to 4) as a compile-time constant.
template <class F>
void with_channels(int channels, F&& f) {
  switch (channels) {
    case 1: return f(std::integral_constant<int, 1>{});
    case 2: return f(std::integral_constant<int, 2>{});
    case 3: return f(std::integral_constant<int, 3>{});
    case 4: return f(std::integral_constant<int, 4>{});
  }
}

/// Sets to[x] = row[columns[x]] for x in [begin, end), in pixels of kChannels bytes. kBlack gives zeros.
template <int kChannels>
void gather(const std::uint8_t* row, const std::vector<int>& columns, int begin, int end, std::uint8_t* to) {
  for (int x = begin; x < end; ++x) {
    const int column = columns[static_cast<std::size_t>(x)];
    for (int c = 0; c < kChannels; ++c)
      to[x * kChannels + c] = column == kBlack ? std::uint8_t{0} : row[column * kChannels + c];
  }
}

/// Sets to[x] = from[-x] for x in [0, count), in pixels of kChannels bytes.
template <int kChannels>
void copy_backwards(const std::uint8_t* from, int count, std::uint8_t* to) {
  if constexpr (kChannels == 3) {
    // Copies four bytes at a time. The fourth byte belongs to the next pixel of the image and is overwritten
    // by the next copy. The first and the last pixel copy three bytes, so that no access leaves the image or
    // `to`.
    std::memcpy(to, from, 3);
    for (int x = 1; x < count - 1; ++x) std::memcpy(to + x * 3, from - x * 3, 4);
    std::memcpy(to + (count - 1) * 3, from - (count - 1) * 3, 3);
  } else {
    for (int x = 0; x < count; ++x) std::memcpy(to + x * kChannels, from - x * kChannels, kChannels);
  }
}

/// Mean and inverse standard deviation, repeated for each pixel of a row: the loop needs no channel index.
template <class T>
class Normalizer {
 public:
  Normalizer(const std::array<Normalization<T>, 4>& by, int width, int channels) {
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c) {
        mean_.push_back(by[static_cast<std::size_t>(c)].mean);
        inverse_std_.push_back(by[static_cast<std::size_t>(c)].inverse_std);
      }
  }

  void row(const std::uint8_t* pixels, T* out) const {
    const auto normalized = [](std::uint8_t pixel, T mean, T inverse_std) {
      return normalize_pixel(pixel, mean, inverse_std);
    };
    map_range<GradMode::overwrite>(0, std::ssize(mean_), normalized, out, pixels, mean_.data(),
                                   inverse_std_.data());
  }

 private:
  std::vector<T> mean_, inverse_std_;
};

/// A table of the normalized value of every byte, for half-precision outputs. Each entry is computed in f32
/// and rounded once. A table lookup is cheaper than rounding every pixel.
template <class Half>
class TableNormalizer {
 public:
  TableNormalizer(const std::array<Normalization<float>, 4>& by, int width, int channels)
      : width_(width), channels_(channels) {
    for (std::size_t pixel = 0; pixel < kPixels; ++pixel)
      for (std::size_t c = 0; c < table_.size(); ++c)
        table_[c][pixel] =
            Half(normalize_pixel(static_cast<std::uint8_t>(pixel), by[c].mean, by[c].inverse_std));
  }

  void row(const std::uint8_t* pixels, Half* out) const {
    with_channels(channels_, [&](auto channels) {
      for (int x = 0; x < width_; ++x)
        for (int c = 0; c < channels; ++c) *out++ = table_[static_cast<std::size_t>(c)][*pixels++];
    });
  }

 private:
  static constexpr std::size_t kPixels = 256;  // possible values of a byte
  int width_, channels_;
  std::array<std::array<Half, kPixels>, 4> table_;
};

template <class T>
using NormalizerFor = std::conditional_t<std::is_floating_point_v<T>, Normalizer<T>, TableNormalizer<T>>;
/// The type in which pixels are normalized.
template <class T>
using NormalizedIn = std::conditional_t<std::is_floating_point_v<T>, T, float>;

/// Augments images of one size. Owns the scratch memory of one thread.
template <class T>
class Augmenter {
 public:
  Augmenter(const AugmentOptions& options, const Shape& images)
      : options_(options),
        height_(static_cast<int>(images[1])),
        width_(static_cast<int>(images[2])),
        channels_(static_cast<int>(images[3])),
        columns_(static_cast<std::size_t>(width_)),
        pairs_(columns_.size()),
        row_(static_cast<std::size_t>(width_ * channels_)) {}

  /// Normalizes the image without any augmentation, as evaluation does.
  void normalize(const std::uint8_t* image, const NormalizerFor<T>& normalizer, T* out) {
    for (int y = 0; y < height_; ++y) normalizer.row(image + y * row_size(), out + y * row_size());
  }

  void augment(const std::uint8_t* image, const AugmentChoices& choices, const NormalizerFor<T>& normalizer,
               T* out) {
    if (options_.min_area > 0) {
      stretch(image, choices, normalizer, out);
    } else {
      shift(image, choices, normalizer, out);
    }
    erase(choices.hole, out);
  }

  /// Sets the pixels of the box to the mean, 0.
  void erase(const ImageBox& box, T* out) const {
    const int first = std::max(box.left, 0), last = std::min(box.left + box.width, width_);
    for (int y = std::max(box.top, 0); y < std::min(box.top + box.height, height_); ++y)
      std::fill(out + y * row_size() + first * channels_, out + y * row_size() + last * channels_, T{});
  }

 private:
  std::int64_t row_size() const { return std::ssize(row_); }

  void shift(const std::uint8_t* image, const AugmentChoices& choices, const NormalizerFor<T>& normalizer,
             T* out) {
    for (int x = 0; x < width_; ++x)
      columns_[static_cast<std::size_t>(x)] =
          source_index((choices.flip ? width_ - 1 - x : x) - choices.right, width_, options_.reflect);
    // Output columns [begin, end) read from inside the image, where their pixels are adjacent too.
    const int begin = std::max(0, choices.flip ? -choices.right : choices.right);
    const int end = begin + width_ - std::abs(choices.right);
    for (int y = 0; y < height_; ++y) {
      const int source = source_index(y - choices.down, height_, options_.reflect);
      if (source == kBlack) {
        std::fill(row_.begin(), row_.end(), std::uint8_t{0});
      } else {
        const std::uint8_t* const from = image + source * row_size();
        with_channels(channels_, [&](auto channels) {
          const std::uint8_t* const inside = from + columns_[static_cast<std::size_t>(begin)] * channels;
          std::uint8_t* const to = row_.data() + begin * channels;
          if (choices.flip) {
            copy_backwards<channels>(inside, end - begin, to);
          } else {
            std::memcpy(to, inside, static_cast<std::size_t>((end - begin) * channels));
          }
          gather<channels>(from, columns_, 0, begin, row_.data());
          gather<channels>(from, columns_, end, width_, row_.data());
        });
      }
      color(choices.colors);
      normalizer.row(row_.data(), out + y * row_size());
    }
  }

  void stretch(const std::uint8_t* image, const AugmentChoices& choices, const NormalizerFor<T>& normalizer,
               T* out) {
    const ImageBox& box = choices.box;
    for (int x = 0; x < width_; ++x)
      pairs_[static_cast<std::size_t>(x)] =
          stretched_from(choices.flip ? width_ - 1 - x : x, width_, box.left, box.width);
    for (int y = 0; y < height_; ++y) {
      const PixelPair rows = stretched_from(y, height_, box.top, box.height);
      const std::uint8_t* const upper = image + rows.first * row_size();
      const std::uint8_t* const lower = image + rows.second * row_size();
      std::uint8_t* to = row_.data();
      for (const PixelPair& columns : pairs_)
        for (int c = 0; c < channels_; ++c) {
          const int left = columns.first * channels_ + c, right = columns.second * channels_ + c;
          *to++ = blend(upper[left], upper[right], lower[left], lower[right], rows.weight, columns.weight);
        }
      color(choices.colors);
      normalizer.row(row_.data(), out + y * row_size());
    }
  }

  /// Changes the saturation and hue of the row.
  void color(const ColorChoices& choices) {
    if (!choices.changes()) return;
    for (std::size_t i = 0; i < row_.size(); i += 3) {
      const Color color = change_color({row_[i], row_[i + 1], row_[i + 2]}, choices);
      row_[i] = color.red;
      row_[i + 1] = color.green;
      row_[i + 2] = color.blue;
    }
  }

  const AugmentOptions& options_;
  int height_, width_, channels_;
  std::vector<int> columns_;       // source column in the image for each output column, or kBlack
  std::vector<PixelPair> pairs_;   // the two source columns for each output column of a stretched box
  std::vector<std::uint8_t> row_;  // one output row before normalization
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
  random = random.resolved();
  const bool changes = options.crop_padding > 0 || options.min_area > 0 || options.flip ||
                       options.cutout > 0 || options.jitter > 0 || options.saturation > 0 ||
                       options.hue > 0 || options.random_erasing > 0 || options.down != 0 ||
                       options.right != 0 || options.mirror;
  const auto augment_to = [&](auto zero) {
    using T = decltype(zero);
    AugmentOptions constant = options;
    constant.jitter = 0;
    const auto normalizer = [&](const AugmentOptions& chosen, std::uint64_t id) {
      std::array<Normalization<NormalizedIn<T>>, 4> by;
      for (int c = 0; c < 4; ++c)
        by[static_cast<std::size_t>(c)] = choose_normalization<NormalizedIn<T>>(chosen, random, id, c);
      return NormalizerFor<T>(by, width, channels);
    };
    const NormalizerFor<T> common = normalizer(constant, 0);
    parallel_for(stream, rows.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
      Augmenter<T> augmenter(options, images.shape);
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint8_t* const image =
            images.as<std::uint8_t>() + rows.as<std::int32_t>()[i] % images.shape[0] * image_size;
        T* const to = out.as<T>() + i * image_size;
        if (!changes) {
          augmenter.normalize(image, common, to);
          continue;
        }
        const auto id = static_cast<std::uint64_t>(ids.as<std::int32_t>()[i]);
        const AugmentChoices choices = choose_augmentation(options, random, id, height, width);
        if (options.jitter > 0)
          augmenter.augment(image, choices, normalizer(options, id), to);
        else
          augmenter.augment(image, choices, common, to);
        if (is_erased(options, random, id)) {
          ImageBox box;
          for (std::uint32_t k = 0; k < kErasingAttempts && box.height == 0; ++k)
            box = choose_erased(k, random, id, height, width);
          augmenter.erase(box, to);
        }
      }
    });
  };
  dispatch(kCpuMemoryTypes, out.dtype, augment_to);
}

void mix_images(CpuStream& stream, ConstView partners, ConstView mixing, View images) {
  if (images.numel() == 0) return;
  const auto* const numbers = mixing.as<float>();
  const auto divisor = numbers[0];
  const std::int64_t top = static_cast<int>(numbers[1]), rows = static_cast<int>(numbers[2]) - top;
  const std::int64_t left = static_cast<int>(numbers[3]), columns = static_cast<int>(numbers[4]) - left;
  const std::int64_t height = images.shape[1], width = images.shape[2], channels = images.shape[3];
  const auto mix = [&](auto zero) {
    using T = decltype(zero);
    using C = NormalizedIn<T>;
    const auto mixed = [divisor](C own, C partner) { return mix_pixel(own, partner, C{divisor}); };
    parallel_for(stream, images.shape[0] * rows, item_grain(columns * channels),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     const std::int64_t row = i / rows * height + top + i % rows;
                     const std::int64_t first = (row * width + left) * channels;
                     map_range<GradMode::overwrite>(first, first + columns * channels, mixed, images.as<T>(),
                                                    images.as<T>(), partners.as<T>());
                   }
                 });
  };
  dispatch(kCpuMemoryTypes, images.dtype, mix);
}

}  // namespace convoy::kernels
