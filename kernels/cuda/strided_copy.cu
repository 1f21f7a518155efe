// kernels/strided_copy.h on the GPU: one thread per element, in the order of the index space.
#include "convoy/kernels/strided_copy.h"

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/index_map.h"
#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels {
namespace {

constexpr int kBlock = 256;

template <class T>
__global__ void __launch_bounds__(kBlock)
    copy_kernel(std::int64_t n, cuda::IndexMap<2> map, GradMode mode, const T* x, T* y) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= n) return;
  std::int64_t offsets[2];
  map.offsets_of(i, offsets);
  T& out = y[offsets[1]];
  const T value = x[offsets[0]];
  out = mode == GradMode::accumulate ? cuda::narrow<T>(cuda::widen(out) + cuda::widen(value)) : value;
}

}  // namespace

void strided_copy(CudaStream& stream, const Shape& space, ConstView x, const Strides& x_strides, GradView y,
                  const Strides& y_strides) {
  const std::int64_t n = space.numel();
  if (!y.wanted() || n == 0) return;
  const cuda::IndexMap<2> map(LoopNest<2>(space, {x_strides, y_strides}));
  dispatch(cuda::kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(n, kBlock), kBlock, 0, copy_kernel<T>, n, map, y.mode, x.as<T>(), y.as<T>());
  });
}

}  // namespace convoy::kernels
