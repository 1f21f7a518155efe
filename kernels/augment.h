// Data augmentation: makes a training batch from stored images in one pass. Gathers the images, then applies
// a random crop, flip, cutout, erasing and normalization. Every random choice is a function of (seed, epoch,
// sample id), so it does not depend on the batch, worker, rank or device. mix_images() mixes two such
// batches.
#pragma once

#include <array>

#include "convoy/kernels/base/random.h"
#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

/// Options of augment. The defaults only convert the pixels.
struct AugmentOptions {
  /// Random shift by -crop_padding … crop_padding pixels on each axis. Must be less than the sides of the
  /// image.
  int crop_padding = 0;
  /// The pixels outside a shifted image: mirrored pixels (the edge is not repeated) if true, black if false.
  bool reflect = false;
  /// Random resized crop (Szegedy et al., arXiv:1409.4842, section 6): the minimum area of the box, in
  /// percent of the image, 1 to 100; 0 means none. The box has an aspect ratio of 3:4 to 4:3 and sides that
  /// are at most those of the image. It is resized to the full image. Cannot be combined with crop_padding.
  int min_area = 0;
  /// Horizontal flip with probability 1/2.
  bool flip = false;
  /// With `flip`: one random choice per sample for all epochs, inverted in every other epoch (Jordan,
  /// arXiv:2404.00498, section 3.6). Two epochs then have both variants of each image.
  bool alternate_flips = false;
  /// Cutout (DeVries and Taylor, arXiv:1708.04552): the side of a square in pixels that is set to the mean (0
  /// after normalization). Its center is anywhere in the image; 0 means none.
  int cutout = 0;
  /// Random brightness and contrast of each sample, in percent, from 0 (none) to 100. With x the normalized
  /// pixel, the output is (x + b) c, where b is uniform in -jitter / 100 … jitter / 100, and c in 1 - jitter
  /// / 100 … 1 + jitter / 100.
  int jitter = 0;
  /// Random saturation of each sample, in percent, from 0 (none) to 100: the distances from the gray image
  /// are multiplied by a uniform factor in 1 - saturation / 100 … 1 + saturation / 100. Needs 3 channels:
  /// red, green, blue.
  int saturation = 0;
  /// Random hue of each sample: the colors are rotated by a uniform part of the color circle, of at most
  /// `hue` percent, 0 (none) to 50, in either direction. Value and saturation (HSV) remain. Needs 3 channels.
  int hue = 0;
  /// Random erasing (Zhong et al., arXiv:1708.04896): the probability that a random box of a sample is set to
  /// the mean. The box has 2% to 33% of the area and a ratio of height to width of 0.3 to 3.3, both uniform,
  /// and is entirely in the image. Images of less than 2 pixels per side are never erased.
  float random_erasing = 0;
  /// A shift of each sample in addition to the random choices, in pixels. The sum of both must be less than
  /// the sides of the image.
  int down = 0;
  int right = 0;        // as `down`
  bool mirror = false;  // a horizontal flip of each sample, in addition to the random choice
  std::array<float, 4> mean{0, 0, 0, 0};         // per channel, of pixels scaled to 0 … 1
  std::array<float, 4> inverse_std{1, 1, 1, 1};  // inverse standard deviation per channel, likewise
};

// Computes out [N, H, W, C] from images (u8 [M, H, W, C], C at most 4):
//   out[n] = (pixel / 255 - mean) inverse_std, of the augmented image rows[n].
// rows (i32 [N]), modulo M, selects the images. ids (i32 [N]) are the global sample ids that key the random choices. out
// is f32 or f64, or f16 or bf16, which are computed in f32 and rounded once. Every device gives the same
// bits.
//
// The random choices use `random` = Random{seed, augmentation, epoch}:
//   words(id)     [0], [1]: the shift down and right, to_below(word, 2 crop_padding + 1) - crop_padding
//                 [2]: the flip, its top bit. With alternate_flips, of epoch 0, inverted in odd epochs
//   words(id, 1)  [0], [1]: the row and column of the cutout's center, by to_below. The square begins
//                 cutout / 2 above and to the left of it.
//   words(id, 2)  [0]: the area of the box, uniform
//                 [1]: the ratio of its shorter side to its longer side, uniform
//                 [2]: the top bit selects which of them is the height
//   words(id, 3)  [0], [1]: the top and left of the box, by to_below
//   words(id, 4)  [0], [1]: b and c of the jitter, from the upper 24 bits as a signed number
//                 [2], [3]: saturation and hue, from the upper 16 bits as a signed number
//   words(id, 5)  [0]: whether the sample is erased: to_uniform(word) < random_erasing
//   words(id, 6 + k), for attempt k until the box is smaller than the image, at most 10:
//                 [0], [1]: area and ratio of the erased box; [2], [3]: its top and left, by to_below
// The pixels of the box are interpolated bilinearly in integer arithmetic (pixel centers are at
// half-integers) and rounded to bytes before the normalization, and so are pixels of another saturation or hue.
void augment(CpuStream&, ConstView images, ConstView rows, ConstView ids, const AugmentOptions& options,
             Random random, View out);
void augment(CudaStream&, ConstView images, ConstView rows, ConstView ids, const AugmentOptions& options,
             Random random, View out);

/// The numbers of the array `mixing` of mix_images().
inline constexpr int kMixingNumbers = 6;

// Mixes each image with its partner: images[n, y, x, c] += (partners[n, y, x, c] - images[n, y, x, c]) /
// divisor for top <= y < bottom and left <= x < right, where a divisor of 1 copies the partner's pixel. This
// is mixup (Zhang et al., arXiv:1710.09412) with a box of the whole image, and CutMix (Yun et al.,
// arXiv:1905.04899) with a divisor of 1. images and partners are [N, H, W, C] of one floating-point type; f16
// and bf16 are computed in f32. mixing is f32 [6]: divisor, top, bottom, left, right, and a number for the
// caller. Every device gives the same bits, because a quotient is added where a product could be contracted
// to an FMA.
void mix_images(CpuStream&, ConstView partners, ConstView mixing, View images);
void mix_images(CudaStream&, ConstView partners, ConstView mixing, View images);

}  // namespace convoy::kernels
