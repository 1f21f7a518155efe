// kernels/loss_scale.h on the GPU.
#include "convoy/kernels/loss_scale.h"

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/shared/loss_scale_update.h"

namespace convoy::kernels {
namespace {

template <class T>
__global__ void loss_scale_kernel(const std::int32_t* non_finite, LossScaleNumbers<T> numbers,
                                  LossScaleOptions options) {
  numbers.update(*non_finite != 0, options);
}

}  // namespace

void update_loss_scale(CudaStream& stream, ConstView non_finite, const LossScaleView& state,
                       LossScaleOptions options) {
  dispatch(cuda::kGpuFullTypes, state.scale.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, 1, 1, 0, loss_scale_kernel<T>, non_finite.as<std::int32_t>(), LossScaleNumbers<T>(state),
           options);
  });
}

}  // namespace convoy::kernels
