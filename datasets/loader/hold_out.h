// The part of the training images that a training holds out for decisions, such as which checkpoint is the
// best.
#pragma once

#include <cstdint>
#include <utility>

#include "convoy/datasets/dataset.h"

namespace convoy::data {

/// Divides a set into a part to train on, the first result, and a part of `count` images, the second. Each
/// class has in both parts the fraction of images that it has in the set, rounded such that the sum is
/// `count`, and keeps at least one image to train on. The images are drawn by `seed`, and keep their order.
/// The result depends on nothing else. Throws UsageError unless `count` is at least 1 and leaves one image
/// per class.
std::pair<ImageSet, ImageSet> hold_out(const ImageSet& set, std::int64_t count, std::uint64_t seed);

}  // namespace convoy::data
