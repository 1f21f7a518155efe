// The binary record format of CIFAR-10 (Krizhevsky, "Learning multiple layers of features from tiny images",
// 2009).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "convoy/datasets/dataset.h"

namespace convoy::data {

inline constexpr std::int64_t kCifarSide = 32;
inline constexpr std::int64_t kCifarPixels = kCifarSide * kCifarSide;
// One label byte, then the red, green and blue planes.
inline constexpr std::int64_t kCifarRecordBytes = 1 + 3 * kCifarPixels;
inline constexpr int kCifarClasses = 10;

/// Fills samples [begin, begin + count) of `set` from the contents of a batch file with `count` records.
/// Throws DataError, which starts with `name`, if the size or a label is wrong.
void parse_cifar10_batch(std::string_view bytes, const std::string& name, std::int64_t begin,
                         std::int64_t count, const ImageSet& set);

}  // namespace convoy::data
