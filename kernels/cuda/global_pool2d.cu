// Global average pooling on the GPU (kernels/pool2d.h) and its gradient. A block is `lanes` packs of channels
// wide and kThreads / lanes pixels high: the fewer the channels, the more threads share the pixels.
#include <algorithm>
#include <bit>

#include "convoy/kernels/cuda/primitives/windows.h"
#include "convoy/kernels/pool2d.h"

namespace convoy::kernels {
namespace {

using cuda::compute_t;
using cuda::load_pack;
using cuda::narrow;
using cuda::Pack;
using cuda::store_pack;
using cuda::widen;

constexpr int kThreads = 256;
constexpr int kMaxLanes = 32;        // a warp moves 32 adjacent packs
constexpr int kPixelsPerThread = 8;  // in backward: this many stores per load and division

/// Returns the block dimensions for images of `packs` packs of channels.
dim3 block_for(std::int64_t packs) {
  const auto lanes = std::bit_ceil(static_cast<unsigned>(std::min<std::int64_t>(packs, kMaxLanes)));
  return {lanes, kThreads / lanes};
}

/// Shared memory for each thread's partial sums of one pack of channels. The element index comes first, so
/// that the threads of a warp use different banks.
template <class T, int kWidth>
struct PartialSums {
  compute_t<T> of[kWidth][kThreads];
};

/// Computes y [image][channel], the mean of x [image][0 … pixels - 1][channel]. Each thread sums every
/// blockDim.y-th pixel, then the rows of the block are combined in a binary tree. One block per image and
/// chunk of channels.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    mean_kernel(std::int64_t pixels, std::int64_t packs, cuda::Divisor chunks, bool is_aligned, const T* x,
                T* y) {
  auto& sums = cuda::shared_memory<PartialSums<T, kWidth>>();
  const std::int64_t image = chunks.quotient(std::int64_t{blockIdx.x});
  const std::int64_t chunk = blockIdx.x - image * chunks.value();
  const std::int64_t pack = chunk * blockDim.x + threadIdx.x;
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;

  compute_t<T> sum[kWidth] = {};
  if (pack < packs)
    for (std::int64_t pixel = threadIdx.y; pixel < pixels; pixel += blockDim.y) {
      const auto terms =
          load_pack<kWidth>(x + ((image * pixels + pixel) * packs + pack) * kWidth, is_aligned);
      for (int i = 0; i < kWidth; ++i) sum[i] += widen(terms.values[i]);
    }
  for (int i = 0; i < kWidth; ++i) sums.of[i][thread] = sum[i];
  for (unsigned rows = blockDim.y / 2; rows > 0; rows /= 2) {
    __syncthreads();
    if (threadIdx.y < rows)
      for (int i = 0; i < kWidth; ++i) sums.of[i][thread] += sums.of[i][thread + rows * blockDim.x];
  }
  if (threadIdx.y > 0 || pack >= packs) return;
  Pack<T, kWidth> mean;
  for (int i = 0; i < kWidth; ++i)
    mean.values[i] = narrow<T>(sums.of[i][thread] / static_cast<compute_t<T>>(pixels));
  T* const to = y + (image * packs + pack) * kWidth;
  if (is_aligned) return store_pack(to, mean);
  for (int i = 0; i < kWidth; ++i) to[i] = mean.values[i];
}

/// Computes dx [image][pixel][channel] = dy [image][channel] / pixels, or +=. One block per image, chunk of
/// blockDim.y kPixelsPerThread pixels, and chunk of channels. The chunk of channels varies fastest.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(std::int64_t pixels, std::int64_t packs, cuda::Divisor pixel_chunks,
                  cuda::Divisor channel_chunks, GradMode mode, const T* dy, T* dx) {
  const std::int64_t row = channel_chunks.quotient(std::int64_t{blockIdx.x});
  const std::int64_t image = pixel_chunks.quotient(row);
  const std::int64_t pack = (blockIdx.x - row * channel_chunks.value()) * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const std::int64_t begin = (row - image * pixel_chunks.value()) * blockDim.y * kPixelsPerThread;
  const std::int64_t end = std::min<std::int64_t>(begin + blockDim.y * kPixelsPerThread, pixels);

  const auto total = load_pack<kWidth>(dy + (image * packs + pack) * kWidth);
  compute_t<T> value[kWidth];
  for (int i = 0; i < kWidth; ++i) value[i] = widen(total.values[i]) / static_cast<compute_t<T>>(pixels);
  for (std::int64_t pixel = begin + threadIdx.y; pixel < end; pixel += blockDim.y) {
    T* const to = dx + ((image * pixels + pixel) * packs + pack) * kWidth;
    Pack<T, kWidth> result{};
    if (mode == GradMode::accumulate) result = load_pack<kWidth>(to);
    for (int i = 0; i < kWidth; ++i)
      result.values[i] =
          narrow<T>(mode == GradMode::accumulate ? widen(result.values[i]) + value[i] : value[i]);
    store_pack(to, result);
  }
}

}  // namespace

void global_avg_pool2d_forward(CudaStream& stream, ConstView x, View y) {
  if (y.numel() == 0) return;
  const std::int64_t images = x.shape[0];
  const std::int64_t pixels = x.shape[1] * x.shape[2];
  const std::int64_t channels = x.shape[3];
  dispatch(cuda::kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool is_aligned = cuda::is_aligned(x.data) && cuda::is_aligned(y.data);
    cuda::dispatch_width<T>(channels % cuda::kVectorWidth<T> == 0, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const std::int64_t packs = channels / kWidth;
      const dim3 block = block_for(packs);
      const std::int64_t chunks = blocks_for(packs, static_cast<int>(block.x));
      launch(stream, static_cast<unsigned>(images * chunks), block, sizeof(PartialSums<T, kWidth>),
             mean_kernel<T, kWidth>, pixels, packs, cuda::Divisor(chunks), is_aligned, x.as<T>(), y.as<T>());
    });
  });
}

void global_avg_pool2d_backward(CudaStream& stream, ConstView dy, GradView dx) {
  if (!dx.wanted() || dx.numel() == 0) return;
  const std::int64_t images = dx.shape[0];
  const std::int64_t pixels = dx.shape[1] * dx.shape[2];
  const std::int64_t channels = dx.shape[3];
  dispatch(cuda::kGpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::dispatch_width<T>(cuda::comes_in_packs<T>(channels, dy.data, dx.data), [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const std::int64_t packs = channels / kWidth;
      const dim3 block = block_for(packs);
      const std::int64_t channel_chunks = blocks_for(packs, static_cast<int>(block.x));
      const std::int64_t pixel_chunks = blocks_for(pixels, static_cast<int>(block.y) * kPixelsPerThread);
      launch(stream, static_cast<unsigned>(images * pixel_chunks * channel_chunks), block, 0,
             spread_kernel<T, kWidth>, pixels, packs, cuda::Divisor(pixel_chunks),
             cuda::Divisor(channel_chunks), dx.mode, dy.as<T>(), dx.as<T>());
    });
  });
}

}  // namespace convoy::kernels
