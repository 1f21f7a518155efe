// The flags of augmentations that --augment does not list: random erasing, mixup and CutMix.
#pragma once

#include "convoy/apps/common/command_line.h"
#include "convoy/datasets/transforms/transforms.h"

namespace convoy {

/// The values of these flags.
struct AugmentationOptions {
  double random_erasing = 0;  // the probability of an image
  double mixup = 0;           // alpha; 0: none
  double cutmix = 0;          // alpha; 0: none

  /// Returns whether images are mixed, so that a sample has no single label.
  bool mixes_labels() const { return mixup > 0 || cutmix > 0; }
};

/// Adds the flags to `line`. `options` must outlive it.
void add_augmentation_flags(CommandLine& line, AugmentationOptions& options);

/// Throws UsageError if a flag contradicts --hardest, a fraction below 1, or --overfit-batch.
void check_augmentation(const AugmentationOptions& options, double hardest, bool overfit_batch);

/// Adds the augmentations to the transforms of a training.
void apply_augmentation(const AugmentationOptions& options, data::TransformSpec& transform);

}  // namespace convoy
