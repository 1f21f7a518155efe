// CIFAR-10's binary records (Krizhevsky, "Learning multiple layers of features from tiny images", 2009).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "datasets/dataset.h"

namespace convoy {

inline constexpr std::int64_t kCifarSide = 32;
inline constexpr std::int64_t kCifarPixels = kCifarSide * kCifarSide;
inline constexpr std::int64_t kCifarRecordBytes =
    1 + 3 * kCifarPixels;  // label, then red, green and blue planes
inline constexpr int kCifarClasses = 10;

/// Fills set[begin, begin + count) from the bytes of a batch file of exactly `count` records.
void parse_cifar10_batch(std::string_view bytes, const std::string& name, std::int64_t begin,
                         std::int64_t count, const ImageSet& set);

}  // namespace convoy
