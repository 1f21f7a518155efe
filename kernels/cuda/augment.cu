// kernels/augment.h on the GPU: one launch computes the batch from the stored bytes. Each block writes a part
// of one image; three warps draw the sample's augmentation choices for the whole block. A second kernel mixes two
// batches.
#include "convoy/kernels/cuda/primitives/windows.h"
#include "convoy/kernels/shared/augment_choices.h"

namespace convoy::kernels {
namespace {

using cuda::compute_t;
using cuda::load_pack;
using cuda::narrow;
using cuda::Pack;
using cuda::store_pack;
using cuda::widen;

constexpr int kAugmentBlock = 256;

/// The sizes of an image, and the divisors that split an element's index into row, pixel and channel.
struct ImageSizes {
  int height, width, channels;
  cuda::Divisor by_row, by_pixel;  // elements per row, elements per pixel

  explicit ImageSizes(const Shape& images)
      : height(static_cast<int>(images[1])),
        width(static_cast<int>(images[2])),
        channels(static_cast<int>(images[3])),
        by_row(images[2] * images[3]),
        by_pixel(images[3]) {}
  CONVOY_HOST_DEVICE int elements() const { return height * width * channels; }
};

/// The shared memory of a block.
template <class C>
struct Sample {
  AugmentChoices choices;
  ImageBox erased;
  Normalization<C> channels[4];
};

/// Returns a byte of the resized box of an image.
__device__ std::uint8_t stretched_pixel(const ImageSizes& sizes, const AugmentChoices& choices,
                                        const std::uint8_t* image, int y, int x, int channel) {
  const PixelPair rows = stretched_from(y, sizes.height, choices.box.top, choices.box.height);
  const PixelPair columns = stretched_from(choices.flip ? sizes.width - 1 - x : x, sizes.width,
                                           choices.box.left, choices.box.width);
  const auto pixel = [&](int row, int column) {
    return int{image[(row * sizes.width + column) * sizes.channels + channel]};
  };
  return blend(pixel(rows.first, columns.first), pixel(rows.first, columns.second),
               pixel(rows.second, columns.first), pixel(rows.second, columns.second), rows.weight,
               columns.weight);
}

/// Returns a byte of the shifted image, 0 where its padding is black.
__device__ std::uint8_t shifted_pixel(const ImageSizes& sizes, const AugmentChoices& choices, bool reflect,
                                      const std::uint8_t* image, int y, int x, int channel) {
  const int from_y = source_index(y - choices.down, sizes.height, reflect);
  const int from_x =
      source_index((choices.flip ? sizes.width - 1 - x : x) - choices.right, sizes.width, reflect);
  if (from_y == kBlack || from_x == kBlack) return 0;
  return image[(from_y * sizes.width + from_x) * sizes.channels + channel];
}

template <bool kHasColors, class C>
__device__ C augmented_element(const ImageSizes& sizes, bool reflect, const Sample<C>& sample,
                               const std::uint8_t* image, int element) {
  const AugmentChoices& choices = sample.choices;
  const int y = sizes.by_row.quotient(element);
  const int in_row = element - y * sizes.width * sizes.channels;
  const int x = sizes.by_pixel.quotient(in_row);
  const int channel = in_row - x * sizes.channels;
  if (choices.hole.contains(y, x) || sample.erased.contains(y, x)) return C{0};
  const auto pixel = [&](int of) {
    return choices.box.height > 0 ? stretched_pixel(sizes, choices, image, y, x, of)
                                  : shifted_pixel(sizes, choices, reflect, image, y, x, of);
  };
  std::uint8_t byte = 0;
  if constexpr (kHasColors) {  // each of the three elements of a pixel reads all of them
    byte = change_color({pixel(0), pixel(1), pixel(2)}, choices.colors).channel(channel);
  } else {
    byte = pixel(channel);
  }
  return normalize_pixel(byte, sample.channels[channel].mean, sample.channels[channel].inverse_std);
}

/// Each thread computes kWidth adjacent elements of out. gridDim.x is N times the number of blocks per image.
/// kHasColors: the options change saturation or hue.
template <class T, int kWidth, bool kHasColors>
__global__ void __launch_bounds__(kAugmentBlock)
    augment_kernel(ImageSizes sizes, cuda::Divisor blocks_per_image, AugmentOptions options, Random random,
                   const std::uint8_t* images, std::int32_t count, const std::int32_t* rows,
                   const std::int32_t* ids, T* out) {
  using C = compute_t<T>;
  Sample<C>& shared = cuda::shared_memory<Sample<C>>();
  const std::int64_t sample = blocks_per_image.quotient(std::int64_t{blockIdx.x});
  const auto id = static_cast<std::uint64_t>(ids[sample]);
  const auto thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    const AugmentChoices choices =
        choose_augmentation(options, random.resolved(), id, sizes.height, sizes.width);
    shared.choices = choices;
  }
  if (thread == warpSize) {  // of another warp than the first
#pragma unroll
    for (int c = 0; c < 4; ++c)
      shared.channels[c] = choose_normalization<C>(options, random.resolved(), id, c);
  }
  if (thread / warpSize == 2) {  // one attempt per thread, of which the first that fits counts
    const auto attempt = static_cast<unsigned>(thread % warpSize);
    ImageBox box;
    if (attempt < kErasingAttempts && is_erased(options, random.resolved(), id))
      box = choose_erased(attempt, random.resolved(), id, sizes.height, sizes.width);
    const unsigned fits = __ballot_sync(0xffffffffu, box.height > 0);
    if (attempt == 0 && fits == 0) shared.erased = {};
    if (box.height > 0 && (fits & ((1u << attempt) - 1)) == 0) shared.erased = box;
  }
  __syncthreads();

  const auto block = static_cast<int>(blockIdx.x - sample * blocks_per_image.value());
  const int begin = (block * kAugmentBlock + thread) * kWidth;
  if (begin >= sizes.elements()) return;
  const std::uint8_t* const image = images + std::int64_t{rows[sample] % count} * sizes.elements();
  Pack<T, kWidth> pack;
  for (int i = 0; i < kWidth; ++i)
    pack.values[i] =
        narrow<T>(augmented_element<kHasColors>(sizes, options.reflect, shared, image, begin + i));
  store_pack(out + sample * sizes.elements() + begin, pack);
}

/// Each thread mixes kWidth adjacent elements of one image.
template <class T, int kWidth>
__global__ void __launch_bounds__(kAugmentBlock)
    mix_images_kernel(ImageSizes sizes, cuda::Divisor by_image, std::int64_t packs, const T* partners,
                      const float* mixing, T* images) {
  using C = compute_t<T>;
  const std::int64_t pack = std::int64_t{blockIdx.x} * kAugmentBlock + threadIdx.x;
  if (pack >= packs) return;
  const auto divisor = static_cast<C>(mixing[0]);
  const int top = static_cast<int>(mixing[1]), bottom = static_cast<int>(mixing[2]);
  const int left = static_cast<int>(mixing[3]), right = static_cast<int>(mixing[4]);
  const std::int64_t first = pack * kWidth;
  const auto in_image = static_cast<int>(first - by_image.quotient(first) * by_image.value());
  const auto own = load_pack<kWidth>(images + first), other = load_pack<kWidth>(partners + first);
  Pack<T, kWidth> mixed;
  for (int i = 0; i < kWidth; ++i) {
    const int y = sizes.by_row.quotient(in_image + i);
    const int x = sizes.by_pixel.quotient(in_image + i - y * sizes.width * sizes.channels);
    const bool inside = top <= y && y < bottom && left <= x && x < right;
    mixed.values[i] =
        inside ? narrow<T>(mix_pixel(widen(own.values[i]), widen(other.values[i]), divisor)) : own.values[i];
  }
  store_pack(images + first, mixed);
}

}  // namespace

void augment(CudaStream& stream, ConstView images, ConstView rows, ConstView ids,
             const AugmentOptions& options, Random random, View out) {
  if (out.numel() == 0) return;
  const ImageSizes sizes(images.shape);
  dispatch(cuda::kGpuTypes, out.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto run = [&](auto kernel, int width) {
      const unsigned blocks_per_image = blocks_for(sizes.elements(), kAugmentBlock * width);
      launch(stream, blocks_per_image * static_cast<unsigned>(rows.numel()), kAugmentBlock,
             sizeof(Sample<compute_t<T>>), kernel, sizes, cuda::Divisor(blocks_per_image), options, random,
             images.as<std::uint8_t>(), static_cast<std::int32_t>(images.shape[0]), rows.as<std::int32_t>(),
             ids.as<std::int32_t>(), out.as<T>());
    };
    // With colors, the time is that of the arithmetic: no packs.
    if (options.saturation > 0 || options.hue > 0) return run(augment_kernel<T, 1, true>, 1);
    cuda::dispatch_width<T>(cuda::comes_in_packs<T>(sizes.elements(), out.data), [&](auto width) {
      run(augment_kernel<T, decltype(width)::value, false>, width);
    });
  });
}

void mix_images(CudaStream& stream, ConstView partners, ConstView mixing, View images) {
  if (images.numel() == 0) return;
  const ImageSizes sizes(images.shape);
  dispatch(cuda::kGpuTypes, images.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool in_packs = cuda::comes_in_packs<T>(sizes.elements(), images.data, partners.data);
    cuda::dispatch_width<T>(in_packs, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const std::int64_t packs = images.numel() / kWidth;
      launch(stream, blocks_for(packs, kAugmentBlock), kAugmentBlock, 0, mix_images_kernel<T, kWidth>, sizes,
             cuda::Divisor(sizes.elements()), packs, partners.as<T>(), mixing.as<float>(), images.as<T>());
    });
  });
}

}  // namespace convoy::kernels
