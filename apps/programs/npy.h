// An encoder of NumPy's .npy format, version 1.0, which numpy.load reads.
#pragma once

#include <string>

#include "convoy/engine/tensor/tensor.h"

namespace convoy {

/// Returns the bytes of a .npy file with this tensor. Throws UsageError unless it is f32 or f64.
std::string encode_npy(const Tensor& tensor);

}  // namespace convoy
