// The transforms between the images of a data set and the network input: augmentation and normalization. All
// functions are thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/datasets/dataset.h"
#include "convoy/kernels/augment.h"
#include "convoy/kernels/base/random.h"

namespace convoy::data {

// ---- Views of original images: crops and rotations of the images of files, before they are resized ----

/// What is drawn for the view of an original image.
struct OriginalViewOptions {
  /// The minimum area of a box, in percent of the original image, 1 to 100, with an aspect ratio of 3:4 to 4:3
  /// (kernels::AugmentOptions::min_area has the source). The box is resized to the image that is trained. 0: the largest
  /// box at the center that has the ratio of the trained image.
  int min_area = 0;
  /// The maximum angle of a rotation about the center of the box, in degrees, 0 (none) to 180. What is outside the
  /// original image is black.
  int rotation = 0;

  /// Returns whether the original images are needed.
  bool enabled() const { return min_area > 0 || rotation > 0; }
};

// ---- Mixup and CutMix: how the samples of a batch are mixed in pairs ----

/// Which batches are mixed: each sample with the one before it in the global batch, both augmented. With both
/// methods, one of them is drawn for each batch with probability 1/2.
struct MixingOptions {
  /// Mixup (Zhang et al., arXiv:1710.09412): images and labels are means, whose weight is drawn from the
  /// distribution Beta(mixup, mixup). 0: none.
  double mixup = 0;
  /// CutMix (Yun et al., arXiv:1905.04899): a box is cut from the partner. Its part of the area is drawn from
  /// the distribution Beta(cutmix, cutmix). 0: none.
  double cutmix = 0;

  /// Returns whether batches are mixed.
  bool enabled() const { return mixup > 0 || cutmix > 0; }
};

/// How all samples of one global batch are mixed with their partners.
struct Mixing {
  double weight = 1;     // of a sample's own label, in multiples of 2^-16; the partner's label has the rest
  double divisor = 1;    // of the difference between a partner's pixel and the sample's own, in the box
  std::int64_t top = 0;  // the first row of the pixels that are mixed
  std::int64_t bottom = 0;  // the row after the last one
  std::int64_t left = 0;    // their first column
  std::int64_t right = 0;   // the column after the last one

  /// Returns the array `mixing` of kernels::mix_images(), whose last number is `weight`.
  std::array<double, kernels::kMixingNumbers> numbers() const;
};

/// Returns the mixing of a global batch of images of height x width pixels. A pure function of its arguments,
/// so all ranks agree without communication. Requires options.enabled().
Mixing choose_mixing(const MixingOptions& options, std::uint64_t seed, std::int64_t epoch, std::int64_t step,
                     std::int64_t height, std::int64_t width);

/// Returns a number from the distribution Beta(alpha, alpha) for the item `a` of `random`; it uses the words
/// (a, b), (a, b + 1) and so on. Requires alpha > 0.
double draw_beta(double alpha, const Random& random, std::uint64_t a, std::uint32_t b);

/// The transforms of a training. Evaluation derives its own from it, so the two cannot differ.
struct TransformSpec {
  OriginalViewOptions original = {};     // instead of the stored image; only where the CPU makes the batches
  kernels::AugmentOptions augment = {};  // the random transforms and the normalization
  /// Mixup and CutMix. Of images that a loader defers, its caller mixes the images.
  MixingOptions mixing = {};

  /// Returns a specification with the same normalization and without random transforms.
  TransformSpec evaluation() const;
  struct View;
  /// Returns six views of each image, as specifications without random transforms, with weights of the sum 1:
  /// the image (1/4) and the image shifted by one pixel down and right, and up and left (1/8 each), as it is
  /// and mirrored. Shifted images have reflected borders. The mean of their logits is usually right more
  /// often than those of the image alone (Jordan, arXiv:2404.00498, section 3.5).
  std::vector<View> views() const;
  /// Returns a description such as "crop 4, flip, cutout 8, normalise (mean 0.491 0.482 0.447, std 0.247
  /// 0.243 0.262)".
  std::string describe() const;
  /// Throws UsageError if images of this shape, [H, W, C], are too small for the crop or the cutout, or a
  /// number of the mixing is negative.
  void check_image_shape(std::int64_t height, std::int64_t width, std::int64_t channels) const;
};

/// One of the views of an image.
struct TransformSpec::View {
  TransformSpec transform;  // without random choices
  double weight = 1;        // of the view's logits in their mean
};

/// Options of make_transform().
struct TransformOptions {
  /// Makes "auto" mean "crop=4,flip" instead of "none".
  bool natural_images = false;
};

/// Parses the text of an augmentation: "none", "auto", or a comma-separated list of "crop[=4]", "reflect",
/// "original-crop[=8]", "rotation[=15]", "resized-crop[=8]", "flip", "alternating-flip", "cutout[=8]", "jitter[=10]", "saturation[=10]" and
/// "hue[=5]". Images are normalized with `statistics`, which are those of the training images. Throws
/// UsageError for an unknown or repeated word, or a number out of range.
TransformSpec make_transform(std::string_view text, const ChannelStatistics& statistics,
                             const TransformOptions& options = {});

}  // namespace convoy::data
