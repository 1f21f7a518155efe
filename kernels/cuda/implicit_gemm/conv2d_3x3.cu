// Convolution as a matrix multiplication whose left matrix is never written to memory (implicit GEMM).
// README.md explains the algorithm.
#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3.h"

#include <optional>

#include "convoy/kernels/cuda/implicit_gemm/copies.h"
#include "convoy/kernels/cuda/implicit_gemm/multiply.h"
#include "convoy/kernels/cuda/implicit_gemm/multiply_warpgroup.h"
#include "convoy/kernels/cuda/implicit_gemm/norm_results.h"
#include "convoy/kernels/cuda/primitives/early_start.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels::implicit_gemm {
namespace {

using cuda::Pack;
using cuda::store_pack;

/// Blocks per multiprocessor for which the compiler leaves enough registers: a thread has 128 or 64 sums, and
/// needs about 100 registers besides.
template <int kPixels>
constexpr int kResidentBlocks = kPixels == 256 ? 2 : 3;

/// No batch norm.
struct NoNorm {};

/// Each block computes kPixels x kColumns elements of out, and each of its warps a quarter of the pixels, in
/// tiles of 16. Norm is NoNorm, ForwardNorm or BackwardNorm.
template <class T, int kPixels, bool kBackward, Instruction kInstruction, class Norm>
__global__ void __launch_bounds__(kThreads, kResidentBlocks<kPixels>)
    conv2d_3x3_kernel(Geometry g, GradMode mode, const T* in, const T* filter, T* out, Norm norm) {
  constexpr int kTiles = kPixels / kWarps / 16;
  static_assert(kPixels * kWideRow <=
                kStages * kFilterBytes + 2 * kPixels * kNarrowRow);  // the tile of store()
  unsigned char* const filters = &cuda::shared_memory<unsigned char>();
  unsigned char* const slabs = filters + kStages * kFilterBytes;
  const int slab_bytes = g.slab_rows(kPixels) * kNarrowRow;
  const int column_tiles = g.outputs / kColumns;
  const int first_column = static_cast<int>(blockIdx.x) % column_tiles * kColumns;
  const int first_pixel = static_cast<int>(blockIdx.x) / column_tiles * kPixels;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;

  cuda::allow_next_kernel();
  cuda::wait_for_previous_kernel();

  // A step multiplies a slab of pixels by row ky of the filters. A slab is fetched with the first row.
  const int slab_count = g.inputs / kDepth;
  const auto fetch = [&](int slab, int ky) {
    if (ky == 0) fetch_pixels<T, kPixels>(g, in, first_pixel, slab, slabs + slab % 2 * slab_bytes);
    fetch_filters<T, kBackward>(g, filter, first_column, slab, ky, filters + ky * kFilterBytes);
  };
  for (int ky = 0; ky < kStages - 1; ++ky) {
    fetch(0, ky);
    cuda::commit_copies();
  }
  if (thread < 2 * 2 * kZeroRows)  // 16 bytes of the zeros of both slabs
    store_pack(reinterpret_cast<T*>(slabs + thread / 16 * slab_bytes + thread % 16 * 16), Pack<T, kPack>{});

  const int pixel = warp * (16 * kTiles) + lane % 16;  // of the block
  unsigned taps[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) taps[t] = taps_inside(g, first_pixel + pixel + 16 * t);
  Sums<kTiles> sums = {};
  for (int slab = 0; slab < slab_count; ++slab) {
    if constexpr (std::is_same_v<Norm, ForwardNorm<T>>) {
      if (norm.input.mean != nullptr) {
        const PackNorm coefficients(norm.input, slab * kDepth + thread % 2 * kPack);
        cuda::wait_for_copies<kStages - 2>();  // for the pixels that this thread has copied
        normalize_pixels<T, kPixels>(g, coefficients, slabs + slab % 2 * slab_bytes);
      }
    }
#pragma unroll 1
    for (int ky = 0; ky < kTaps; ++ky) {
      cuda::wait_for_copies<kStages - 2>();
      if constexpr (kInstruction == Instruction::wgmma) cuda::fence_async_proxy();
      __syncthreads();  // the copies of all threads have landed, and no thread still reads the previous stage
      const int next = ky + kStages - 1, next_slab = slab + next / kTaps;
      if (next_slab < slab_count) fetch(next_slab, next % kTaps);
      cuda::commit_copies();
      constexpr auto kMultiply = kInstruction == Instruction::wgmma
                                     ? multiply_by_warpgroup<T, kBackward, kTiles>
                                     : multiply_by_warps<T, kBackward, kTiles>;
      kMultiply(g, slabs + slab % 2 * slab_bytes, filters + ky * kFilterBytes, ky,
                kZeroRows + g.halo() + pixel, taps, sums);
    }
  }
  __syncthreads();  // all threads have read the last stage, whose memory store() uses
  const int rows = g.pixels - first_pixel < kPixels ? g.pixels - first_pixel : kPixels;
  const std::int64_t first = std::int64_t{first_pixel} * g.outputs + first_column;
  const BlockPart part{first_column / kColumns, first_pixel / kPixels,
                       static_cast<int>(gridDim.x) / column_tiles, rows};
  if constexpr (std::is_same_v<Norm, ForwardNorm<T>>) {
    store_with_moments<kPixels>(g, part, sums, filters, out + first, norm);
  } else if constexpr (std::is_same_v<Norm, BackwardNorm<T>>) {
    store_masked<kPixels>(g, part, sums, filters, out + first, norm.x + first, norm);
  } else {
    store(g, rows, mode, sums, filters, out + first);
  }
}

/// norm(T{}) returns the last argument of the kernel.
template <bool kBackward, class F>
void enqueue(CudaStream& stream, ConstView in, ConstView filter, GradView out, Variant variant,
             const F& norm) {
  const Geometry g(in.shape, out.shape);
  if (g.pixels == 0) return;
  const int pixels = static_cast<int>(variant.pixels);
  const unsigned blocks = blocks_for(g.pixels, pixels) * static_cast<unsigned>(g.outputs / kColumns);
  constexpr ElementTypes<float16, bfloat16> kTypes{"a tensor core"};
  dispatch(kTypes, out.dtype, [&](auto zero) {
    using T = decltype(zero);
    using Norm = decltype(norm(zero));
    const auto run = [&](auto kernel) {
      launch(LaunchStart::early, stream, blocks, kThreads, g.shared_bytes(pixels), kernel, g, out.mode,
             in.as<T>(), filter.as<T>(), out.as<T>(), norm(zero));
    };
    const bool is_large = variant.pixels == BlockPixels::large;
    if (variant.instruction == Instruction::wgmma)
      run(is_large ? conv2d_3x3_kernel<T, 256, kBackward, Instruction::wgmma, Norm>
                   : conv2d_3x3_kernel<T, 128, kBackward, Instruction::wgmma, Norm>);
    else
      run(is_large ? conv2d_3x3_kernel<T, 256, kBackward, Instruction::mma_sync, Norm>
                   : conv2d_3x3_kernel<T, 128, kBackward, Instruction::mma_sync, Norm>);
  });
}

constexpr auto kNoNorm = [](auto /*zero*/) { return NoNorm{}; };

static_assert(kMaxNormChannels / kColumns <= CudaStream::kTickets);

/// `coefficients` are factor and offset, [2, C].
NormCoefficients coefficients_of(const ConstView& mean, const ConstView& coefficients) {
  const auto* const factor = coefficients.as<float>();
  return {mean.as<float>(), factor, factor + mean.numel()};
}

bool supports(DType dtype, const ConvSizes& s, std::int64_t inputs, std::int64_t outputs) {
  constexpr std::int64_t kMaxPixels = std::int64_t{1} << 30;
  return is_half(dtype) && s.kh == 3 && s.kw == 3 && s.stride == 1 && s.padding == 1 && s.groups == 1 &&
         s.w <= kMaxWidth && s.n * s.h * s.w <= kMaxPixels && inputs > 0 && inputs % kDepth == 0 &&
         outputs > 0 && outputs % kColumns == 0;
}

static_assert(kStages * kFilterBytes + 2 * (kZeroRows + 256 + 2 * (kMaxWidth + 1)) * kNarrowRow <=
              kMaxSharedBytes);

}  // namespace

bool supports_forward(DType dtype, const ConvSizes& sizes) {
  return supports(dtype, sizes, sizes.i, sizes.o);
}

bool supports_backward_data(DType dtype, const ConvSizes& sizes) {
  return supports(dtype, sizes, sizes.o, sizes.i);
}

bool has_wgmma(const CudaStream& stream) {
  int major = 0, minor = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream.device()));
  CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, stream.device()));
  return major == 9 && minor == 0;
}

BlockPixels block_pixels(const Shape& out) {
  constexpr std::int64_t kManyBlocks = 200;
  const std::int64_t pixels = out[0] * out[1] * out[2];
  return blocks_for(pixels, 256) * (out[3] / kColumns) >= kManyBlocks ? BlockPixels::large
                                                                      : BlockPixels::small;
}

Variant default_variant(const CudaStream& stream, const Shape& out) {
  return {block_pixels(out), has_wgmma(stream) ? Instruction::wgmma : Instruction::mma_sync};
}

void forward(CudaStream& stream, ConstView x, ConstView filter, View y, Variant variant) {
  enqueue<false>(stream, x, filter, GradView(y), variant, kNoNorm);
}

void backward_data(CudaStream& stream, ConstView dy, ConstView filter, GradView dx, Variant variant) {
  if (dx.wanted()) enqueue<true>(stream, dy, filter, dx, variant, kNoNorm);
}

void forward(CudaStream& stream, ConstView x, const InputNorm& norm, ConstView filter, View y,
             const OutputStatistics& s, Variant variant) {
  const bool has_statistics = s.mean.data != nullptr;
  if (y.numel() == 0) {
    if (!has_statistics) return;
    fill(stream, 0, s.mean);
    fill(stream, 0, s.inverse_std);
    return;
  }
  std::optional<ColumnMemory> memory;
  if (has_statistics)
    memory.emplace(stream, y.numel() / y.shape[3], static_cast<int>(variant.pixels), y.shape[3]);
  const ColumnPartials partials = has_statistics ? memory->partials() : ColumnPartials{};
  enqueue<false>(stream, x, filter, GradView(y), variant, [&](auto zero) {
    using T = decltype(zero);
    return ForwardNorm<T>{coefficients_of(norm.mean, norm.coefficients), partials,
                          cuda::statistics_of<T>(s.gamma, s.beta, s.mean, s.inverse_std, s.coefficients,
                                                 s.running_mean, s.running_var, s.options)};
  });
}

void backward_data(CudaStream& stream, ConstView dy, ConstView filter, View g, const NormGradient& norm,
                   Variant variant) {
  if (g.numel() == 0) {
    for (const GradView& gradient : {norm.dgamma, norm.dbeta})
      if (gradient.wanted() && gradient.mode == GradMode::overwrite) fill(stream, 0, gradient);
    return;
  }
  const std::int64_t channels = g.shape[3];
  const ColumnMemory memory(stream, g.numel() / channels, static_cast<int>(variant.pixels), channels);
  auto* const direct = norm.factors.as<float>();
  const cuda::GradientRules<float> rules{norm.gamma.as<float>(),
                                         norm.inverse_std.as<float>(),
                                         /*spread_is_var=*/false,
                                         /*epsilon=*/0,
                                         cuda::ChannelGradient<float>(norm.dgamma),
                                         cuda::ChannelGradient<float>(norm.dbeta),
                                         {direct, direct + channels, direct + 2 * channels},
                                         /*shard_sums=*/nullptr};
  enqueue<true>(stream, dy, filter, GradView(g), variant, [&](auto zero) {
    using T = decltype(zero);
    return BackwardNorm<T>{norm.x.as<T>(), coefficients_of(norm.mean, norm.coefficients), memory.partials(),
                           rules};
  });
}

}  // namespace convoy::kernels::implicit_gemm
