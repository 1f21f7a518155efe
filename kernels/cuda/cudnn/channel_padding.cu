#include "convoy/kernels/cuda/cudnn/channel_padding.h"

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels::channel_padding {
namespace {

using namespace cuda;

constexpr ElementTypes<float16, bfloat16> kTypes{"a tensor core"};
constexpr int kBlock = 256;
constexpr int kWidth = 8;  // channels of a pack

// One thread per pack of y. kWide: rows of x consist of packs too.
template <bool kWide, class T>
__global__ void __launch_bounds__(kBlock)
    pad_channels_kernel(std::int64_t packs, int packs_of_row, int channels, const T* x, T* y) {
  const std::int64_t pack = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (pack >= packs) return;
  const std::int64_t row = pack / packs_of_row;
  const int first = static_cast<int>(pack - row * packs_of_row) * kWidth;
  const T* const from = x + row * channels + first;
  Pack<T, kWidth> out{};
  if constexpr (kWide) {
    if (first < channels) out = load_pack<kWidth>(from);
  } else {
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      if (first + i < channels) out.values[i] = from[i];
  }
  store_pack(y + pack * kWidth, out);
}

// One thread per kCount elements of y, which are in one row.
template <int kCount, class T>
__global__ void __launch_bounds__(kBlock)
    cut_channels_kernel(std::int64_t parts, int parts_of_row, int channels_of_x, const T* x, T* y) {
  const std::int64_t part = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (part >= parts) return;
  const std::int64_t row = part / parts_of_row;
  const std::int64_t first = (part - row * parts_of_row) * kCount;
  store_pack(y + part * kCount, load_pack<kCount>(x + row * channels_of_x + first));
}

/// Returns whether the rows of both arrays consist of whole packs.
bool have_packs(ConstView x, ConstView y) {
  return x.shape[-1] % kWidth == 0 && y.shape[-1] % kWidth == 0 && is_aligned(x.data) && is_aligned(y.data);
}

}  // namespace

void pad_channels(CudaStream& stream, ConstView x, View y) {
  if (y.numel() == 0) return;
  dispatch(kTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t packs = y.numel() / kWidth;
    launch(stream, blocks_for(packs, kBlock), kBlock, 0,
           have_packs(x, y) ? pad_channels_kernel<true, T> : pad_channels_kernel<false, T>, packs,
           static_cast<int>(y.shape[-1] / kWidth), static_cast<int>(x.shape[-1]), x.as<T>(), y.as<T>());
  });
}

void cut_channels(CudaStream& stream, ConstView x, View y) {
  if (y.numel() == 0) return;
  dispatch(kTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const int count = have_packs(x, y) ? kWidth : 1;
    const std::int64_t parts = y.numel() / count;
    launch(stream, blocks_for(parts, kBlock), kBlock, 0,
           count == 1 ? cut_channels_kernel<1, T> : cut_channels_kernel<kWidth, T>, parts,
           static_cast<int>(y.shape[-1] / count), static_cast<int>(x.shape[-1]), x.as<T>(), y.as<T>());
  });
}

}  // namespace convoy::kernels::channel_padding
