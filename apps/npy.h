// NumPy's .npy format, version 1.0: what Python reads with numpy.load.
#pragma once

#include <string>

#include "engine/tensor/tensor.h"

namespace convoy {

/// The bytes of a file that holds this f32 or f64 tensor.
std::string encode_npy(const Tensor& tensor);

}  // namespace convoy
