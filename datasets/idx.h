// The IDX format of MNIST (LeCun, "The MNIST database"): big-endian magic and sizes, then one byte a value.
#pragma once

#include <string>
#include <string_view>

#include "engine/tensor/tensor.h"

namespace convoy {

/// u8 [N, rows, columns, 1] from an IDX file's bytes, plain or gzip; `name` for messages.
Tensor parse_idx_images(std::string_view bytes, const std::string& name);
/// i32 [N], each below `classes`.
Tensor parse_idx_labels(std::string_view bytes, const std::string& name, int classes);

}  // namespace convoy
