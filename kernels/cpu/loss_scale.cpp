// kernels/loss_scale.h on the CPU.
#include "convoy/kernels/loss_scale.h"

#include "convoy/kernels/cpu/primitives/element.h"
#include "convoy/kernels/shared/loss_scale_update.h"

namespace convoy::kernels {

void update_loss_scale(CpuStream&, ConstView non_finite, const LossScaleView& state,
                       LossScaleOptions options) {
  dispatch(kCpuFullTypes, state.scale.dtype, [&](auto zero) {
    LossScaleNumbers<decltype(zero)>(state).update(*non_finite.as<std::int32_t>() != 0, options);
  });
}

}  // namespace convoy::kernels
