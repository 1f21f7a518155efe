// The activation of batch norm as a template argument.
#pragma once

#include <type_traits>

#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/cpu/primitives/vector_math.h"

namespace convoy::kernels {

/// Calls f(std::integral_constant<NormActivation, activation>).
template <class F>
void choose_activation(NormActivation activation, const F& f) {
  switch (activation) {
    case NormActivation::none: return f(std::integral_constant<NormActivation, NormActivation::none>());
    case NormActivation::relu: return f(std::integral_constant<NormActivation, NormActivation::relu>());
    case NormActivation::gelu: return f(std::integral_constant<NormActivation, NormActivation::gelu>());
  }
}

}  // namespace convoy::kernels
