// The tail of the normal distribution in f32, for both devices.
#pragma once

#include "convoy/kernels/base/dtype.h"
#include "convoy/kernels/base/multiply_add.h"

namespace convoy::kernels {

/// A fraction, above / below, whose value is between 0 and 1/2.
struct NormalQuotient {
  float above, below;
};

/// Returns Phi(-size) e^(size^2 / 2) as a fraction, for 0 <= size <= 14.5, with a relative error of 2^-27
/// before rounding. Phi is the normal distribution function. The quotient falls slowly from 1/2 (it is half
/// of erfcx(size / sqrt 2)), and all of its terms are positive, so nothing cancels. The coefficients were
/// computed for this file by least squares with Lawson's iteration, which moves the weights to where the
/// error is largest.
CONVOY_HOST_DEVICE inline NormalQuotient normal_quotient(float size) {
  float above = 0x1.0dc7f8p-8F;
  above = multiply_add(above, size, 0x1.4ce116p-5F);
  above = multiply_add(above, size, 0x1.77462ap-3F);
  above = multiply_add(above, size, 0x1.c0d1cep-2F);
  above = multiply_add(above, size, 0.5F);
  float below = 0x1.521dd6p-7F;
  below = multiply_add(below, size, 0x1.a13a8ap-4F);
  below = multiply_add(below, size, 0x1.e0bfcap-2F);
  below = multiply_add(below, size, 0x1.33d85ap+0F);
  below = multiply_add(below, size, 0x1.acab18p+0F);
  below = multiply_add(below, size, 1.0F);
  return {above, below};
}

/// Returns the same fraction with a relative error of 2^-15.1, which is enough for f16 and bf16, from half as
/// many multiplications.
CONVOY_HOST_DEVICE inline NormalQuotient short_normal_quotient(float size) {
  float above = 0x1.fb8944p-5F;
  above = multiply_add(above, size, 0x1.1c0352p-2F);
  above = multiply_add(above, size, 0.5F);
  float below = 0x1.3db0c8p-3F;
  below = multiply_add(below, size, 0x1.6694bp-1F);
  below = multiply_add(below, size, 0x1.5a672cp+0F);
  below = multiply_add(below, size, 1.0F);
  return {above, below};
}

}  // namespace convoy::kernels
