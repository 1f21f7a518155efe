// The activation of batch norm as a template argument.
#pragma once

#include <type_traits>

#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/cpu/primitives/vector_math.h"

namespace convoy::kernels {

/// Calls f(std::integral_constant<FusedActivation, activation>).
template <class F>
void choose_activation(FusedActivation activation, const F& f) {
  switch (activation) {
    case FusedActivation::none: return f(std::integral_constant<FusedActivation, FusedActivation::none>());
    case FusedActivation::relu: return f(std::integral_constant<FusedActivation, FusedActivation::relu>());
    case FusedActivation::gelu: return f(std::integral_constant<FusedActivation, FusedActivation::gelu>());
  }
}

}  // namespace convoy::kernels
