// The values of a result, for comparisons.
#pragma once

#include <vector>

#include "convoy/engine/autograd/variable.h"

namespace convoy::testing {

inline std::vector<float> values_of(const Variable& x) { return x.value().to_vector<float>(); }

}  // namespace convoy::testing
