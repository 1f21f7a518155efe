// The transforms between the images of a data set and the network input: augmentation and normalization. All
// functions are thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convoy/datasets/dataset.h"
#include "convoy/datasets/transforms/mixing.h"
#include "convoy/datasets/transforms/rand_augment.h"
#include "convoy/kernels/augment.h"

namespace convoy::data {

/// The transforms of a training. Evaluation derives its own from it, so the two cannot differ.
struct TransformSpec {
  RandAugmentOptions rand_augment = {};  // first, on the stored image; only where the CPU makes the batches
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
  /// Throws UsageError if images of this shape, [H, W, C], are too small for the crop or the cutout or have
  /// too many channels for RandAugment, or a number of the mixing is negative.
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
/// "resized-crop[=8]", "flip", "alternating-flip", "cutout[=8]", "jitter[=10]", "saturation[=10]" and
/// "hue[=5]". Images are normalized with `statistics`, which are those of the training images. Throws
/// UsageError for an unknown or repeated word, or a number out of range.
TransformSpec make_transform(std::string_view text, const ChannelStatistics& statistics,
                             const TransformOptions& options = {});

}  // namespace convoy::data
