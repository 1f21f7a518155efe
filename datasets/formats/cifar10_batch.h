// The two formats in which CIFAR-10 is distributed (Krizhevsky, "Learning multiple layers of features from
// tiny images", 2009): binary records, and pickles for Python.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

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
/// Does the same for a batch file of cifar-10-batches-py: a pickle with the array `data`, u8 [count, 3072],
/// and the list `labels`.
void parse_cifar10_pickle(std::string_view bytes, const std::string& name, std::int64_t begin,
                          std::int64_t count, const ImageSet& set);

/// Returns the class names of batches.meta.txt, one per line. Throws DataError, which starts with `name`,
/// unless there are ten.
std::vector<std::string> parse_cifar10_names(std::string_view bytes, const std::string& name);
/// Does the same for batches.meta of cifar-10-batches-py: a pickle with the list `label_names`.
std::vector<std::string> parse_cifar10_pickled_names(std::string_view bytes, const std::string& name);

}  // namespace convoy::data
