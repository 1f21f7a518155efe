// kernels/loss_scale.h on the CPU.
#include "kernels/loss_scale.h"

#include "kernels/cpu/primitives/element.h"
#include "kernels/shared/loss_scale_update.h"

namespace convoy {

void update_loss_scale(CpuStream&, ConstView non_finite, const LossScaleView& state,
                       LossScaleOptions options) {
  dispatch(kCpuFullTypes, state.scale.dtype, [&](auto zero) {
    LossScaleNumbers<decltype(zero)>(state).update(*non_finite.as<std::int32_t>() != 0, options);
  });
}

}  // namespace convoy
