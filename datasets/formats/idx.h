// The IDX format of MNIST (LeCun, "The MNIST database"): big-endian magic number and sizes, then one byte per
// value.
#pragma once

#include <string>
#include <string_view>

#include "convoy/engine/tensor/tensor.h"

namespace convoy::data {

/// Parses the contents of an IDX file, plain or gzip, and returns images u8 [N, rows, columns, 1]. Throws
/// DataError, which starts with `name`, if the file is damaged or not an IDX file of images.
Tensor parse_idx_images(std::string_view bytes, const std::string& name);
/// Parses the contents of an IDX file, plain or gzip, and returns labels i32 [N]. Throws DataError also if a
/// label is not below `classes`.
Tensor parse_idx_labels(std::string_view bytes, const std::string& name, int classes);

}  // namespace convoy::data
