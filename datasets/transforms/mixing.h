// Mixup and CutMix: how the samples of a batch are mixed in pairs. All functions are thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "convoy/kernels/augment.h"

namespace convoy::data {

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

}  // namespace convoy::data
