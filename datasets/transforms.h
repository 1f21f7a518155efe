// What happens to an image between the disk and the network, as one specification; evaluation's is derived from it.
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
  /// "crop 4, flip, cutout 8, normalise (0.49 …)".
  std::string describe() const;
};

/// From the text of --augment: "none", or a comma list of "crop[=4]", "reflect", "flip", "cutout[=8]"; normalisation by
/// the statistics of the training images. "auto" is crop=4,flip for three-channel sets of natural images
/// (`natural`), and none else. UsageError for any other word.
TransformSpec make_transform(std::string_view text, const ChannelStatistics& statistics, bool natural);

}  // namespace convoy
