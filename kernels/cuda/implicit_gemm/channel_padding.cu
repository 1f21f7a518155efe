#include "convoy/kernels/cuda/implicit_gemm/channel_padding.h"

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels::implicit_gemm {
namespace {

using namespace cuda;

constexpr ElementTypes<float16, bfloat16> kTypes{"a tensor core"};
constexpr int kBlock = 256;
constexpr int kWidth = 8;  // channels of a pack

// One thread per pack of y.
template <class T>
__global__ void __launch_bounds__(kBlock)
    pad_channels_kernel(std::int64_t packs, int packs_of_row, int channels, const T* x, T* y) {
  const std::int64_t pack = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (pack >= packs) return;
  const std::int64_t row = pack / packs_of_row;
  const int first = static_cast<int>(pack - row * packs_of_row) * kWidth;
  Pack<T, kWidth> out{};
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    if (first + i < channels) out.values[i] = x[row * channels + first + i];
  store_pack(y + pack * kWidth, out);
}

// One thread per element of y.
template <class T>
__global__ void __launch_bounds__(kBlock)
    cut_channels_kernel(std::int64_t elements, int channels, int channels_of_x, const T* x, T* y) {
  const std::int64_t e = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (e >= elements) return;
  const std::int64_t row = e / channels;
  y[e] = x[row * channels_of_x + (e - row * channels)];
}

}  // namespace

void pad_channels(CudaStream& stream, ConstView x, View y) {
  if (y.numel() == 0) return;
  dispatch(kTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t packs = y.numel() / kWidth;
    launch(stream, blocks_for(packs, kBlock), kBlock, 0, pad_channels_kernel<T>, packs,
           static_cast<int>(y.shape[-1] / kWidth), static_cast<int>(x.shape[-1]), x.as<T>(), y.as<T>());
  });
}

void cut_channels(CudaStream& stream, ConstView x, View y) {
  if (y.numel() == 0) return;
  dispatch(kTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(y.numel(), kBlock), kBlock, 0, cut_channels_kernel<T>, y.numel(),
           static_cast<int>(y.shape[-1]), static_cast<int>(x.shape[-1]), x.as<T>(), y.as<T>());
  });
}

}  // namespace convoy::kernels::implicit_gemm
