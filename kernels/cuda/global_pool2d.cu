// The mean over an image's pixels on the GPU, and its gradient. A block is `lanes` packs of channels wide and
// kThreads / lanes pixels high: few channels leave more threads to the pixels.
#include <algorithm>
#include <bit>

#include "kernels/cuda/windows.h"
#include "kernels/pool2d.h"

namespace convoy {
namespace {

using cuda::compute_t;
using cuda::load_pack;
using cuda::narrow;
using cuda::Pack;
using cuda::store_pack;
using cuda::widen;

constexpr int kThreads = 256;
constexpr int kMaxLanes = 32;      // a warp moves 32 neighbouring packs
constexpr int kPixelsAThread = 8;  // of a gradient: as many stores for one load and one division

dim3 block_for(std::int64_t packs) {
  const auto lanes = std::bit_ceil(static_cast<unsigned>(std::min<std::int64_t>(packs, kMaxLanes)));
  return {lanes, kThreads / lanes};
}

/// One pack of channels of each thread's partial sum; by element first, so that threads lie in different
/// banks.
template <class T, int kWidth>
struct PartialSums {
  compute_t<T> of[kWidth][kThreads];
};

/// y [image][channel] = the mean of x [image][0 … pixels - 1][channel]. Each thread adds up every
/// blockDim.y-th pixel, then the block folds its rows together by halves. One block an image and chunk of
/// channels.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    mean_kernel(std::int64_t pixels, std::int64_t packs, cuda::Divisor chunks, const T* x, T* y) {
  auto& sums = cuda::shared_memory<PartialSums<T, kWidth>>();
  const std::int64_t image = chunks.quotient(std::int64_t{blockIdx.x});
  const std::int64_t chunk = blockIdx.x - image * chunks.value();
  const std::int64_t pack = chunk * blockDim.x + threadIdx.x;
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;

  compute_t<T> sum[kWidth] = {};
  if (pack < packs)
    for (std::int64_t pixel = threadIdx.y; pixel < pixels; pixel += blockDim.y) {
      const auto terms = load_pack<kWidth>(x + ((image * pixels + pixel) * packs + pack) * kWidth);
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
  store_pack(y + (image * packs + pack) * kWidth, mean);
}

/// dx [image][pixel][channel] = dy [image][channel] / pixels, or += . One block an image, chunk of
/// blockDim.y kPixelsAThread pixels and chunk of channels, the last counting fastest.
template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    spread_kernel(std::int64_t pixels, std::int64_t packs, cuda::Divisor pixel_chunks,
                  cuda::Divisor channel_chunks, Mode mode, const T* dy, T* dx) {
  const std::int64_t row = channel_chunks.quotient(std::int64_t{blockIdx.x});
  const std::int64_t image = pixel_chunks.quotient(row);
  const std::int64_t pack = (blockIdx.x - row * channel_chunks.value()) * blockDim.x + threadIdx.x;
  if (pack >= packs) return;
  const std::int64_t begin = (row - image * pixel_chunks.value()) * blockDim.y * kPixelsAThread;
  const std::int64_t end = std::min<std::int64_t>(begin + blockDim.y * kPixelsAThread, pixels);

  const auto total = load_pack<kWidth>(dy + (image * packs + pack) * kWidth);
  compute_t<T> share[kWidth];
  for (int i = 0; i < kWidth; ++i) share[i] = widen(total.values[i]) / static_cast<compute_t<T>>(pixels);
  for (std::int64_t pixel = begin + threadIdx.y; pixel < end; pixel += blockDim.y) {
    T* const to = dx + ((image * pixels + pixel) * packs + pack) * kWidth;
    Pack<T, kWidth> result{};
    if (mode == Mode::add) result = load_pack<kWidth>(to);
    for (int i = 0; i < kWidth; ++i)
      result.values[i] = narrow<T>(mode == Mode::add ? widen(result.values[i]) + share[i] : share[i]);
    store_pack(to, result);
  }
}

}  // namespace

void global_avg_pool2d_forward(CudaStream& stream, ConstView x, View y) {
  if (y.numel() == 0) return;
  const std::int64_t images = x.shape[0];
  const std::int64_t pixels = x.shape[1] * x.shape[2];
  const std::int64_t channels = x.shape[3];
  cuda::dispatch_floating(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::dispatch_width<T>(cuda::comes_in_packs<T>(channels, x.data, y.data), [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const std::int64_t packs = channels / kWidth;
      const dim3 block = block_for(packs);
      const std::int64_t chunks = blocks_for(packs, static_cast<int>(block.x));
      launch(stream, static_cast<unsigned>(images * chunks), block, sizeof(PartialSums<T, kWidth>),
             mean_kernel<T, kWidth>, pixels, packs, cuda::Divisor(chunks), x.as<T>(), y.as<T>());
    });
  });
}

void global_avg_pool2d_backward(CudaStream& stream, ConstView dy, GradView dx) {
  if (!dx.wanted() || dx.numel() == 0) return;
  const std::int64_t images = dx.shape[0];
  const std::int64_t pixels = dx.shape[1] * dx.shape[2];
  const std::int64_t channels = dx.shape[3];
  cuda::dispatch_floating(dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::dispatch_width<T>(cuda::comes_in_packs<T>(channels, dy.data, dx.data), [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const std::int64_t packs = channels / kWidth;
      const dim3 block = block_for(packs);
      const std::int64_t channel_chunks = blocks_for(packs, static_cast<int>(block.x));
      const std::int64_t pixel_chunks = blocks_for(pixels, static_cast<int>(block.y) * kPixelsAThread);
      launch(stream, static_cast<unsigned>(images * pixel_chunks * channel_chunks), block, 0,
             spread_kernel<T, kWidth>, pixels, packs, cuda::Divisor(pixel_chunks),
             cuda::Divisor(channel_chunks), dx.mode, dy.as<T>(), dx.as<T>());
    });
  });
}

}  // namespace convoy
