// What happens to an image between the disk and the network, as one specification; evaluation's is derived
// from it.
#pragma once

#include <string>
#include <string_view>

#include "datasets/dataset.h"
#include "kernels/augment.h"

namespace convoy {

struct TransformSpec {
  AugmentOptions augment;  // the random part, and the normalisation

  /// The same normalisation, nothing random.
  TransformSpec evaluation() const;
  /// "crop 4, flip, cutout 8, normalise (mean 0.491 0.482 0.447, std 0.247 0.243 0.262)".
  std::string describe() const;
  /// UsageError where images of this size cannot be shifted or cut so far.
  void check_image_size(std::int64_t height, std::int64_t width) const;
};

/// From the text of --augment: "none", or a comma list of "crop[=4]", "reflect", "resized-crop[=8]", "flip",
/// "cutout[=8]"; normalisation by the statistics of the training images. "auto" is crop=4,flip for
/// three-channel sets of natural images
/// (`natural`), and none else. UsageError for any other word, a word said twice, or a number out of range.
TransformSpec make_transform(std::string_view text, const ChannelStatistics& statistics, bool natural);

}  // namespace convoy
