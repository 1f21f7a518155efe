// The flags of augmentations that --augment does not list: RandAugment, random erasing, mixup and CutMix.
#pragma once

#include <string>

#include "convoy/apps/common/command_line.h"
#include "convoy/apps/common/compute.h"
#include "convoy/datasets/transforms/transforms.h"

namespace convoy {

/// The values of these flags.
struct AugmentationOptions {
  std::string randaugment = "none";  // or N,M
  double random_erasing = 0;         // the probability of an image
  double mixup = 0;                  // alpha; 0: none
  double cutmix = 0;                 // alpha; 0: none

  /// Returns whether images are mixed, so that a sample has no single label.
  bool mixes_labels() const { return mixup > 0 || cutmix > 0; }
};

/// Adds the flags to `line`. `options` must outlive it.
void add_augmentation_flags(CommandLine& line, AugmentationOptions& options);

/// Sets --no-data-on-device if it is not given and RandAugment, which the CPU computes, needs it.
void resolve_augmentation(const AugmentationOptions& options, ComputeOptions& compute);

/// Throws UsageError if a flag contradicts --data-on-device, --hardest, a fraction below 1, or
/// --overfit-batch.
void check_augmentation(const AugmentationOptions& options, const ComputeOptions& compute, double hardest,
                        bool overfit_batch);

/// Adds the augmentations to the transforms of a training.
void apply_augmentation(const AugmentationOptions& options, data::TransformSpec& transform);

}  // namespace convoy
