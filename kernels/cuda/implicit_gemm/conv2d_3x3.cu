// Convolution as a matrix multiplication whose left matrix is never written to memory (implicit GEMM).
// README.md explains the algorithm.
#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3.h"

#include "convoy/kernels/cuda/implicit_gemm/geometry.h"
#include "convoy/kernels/cuda/primitives/async_copy.h"
#include "convoy/kernels/cuda/primitives/early_start.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/cuda/primitives/tensor_core.h"
#include "convoy/kernels/cuda/primitives/warpgroup.h"

namespace convoy::kernels::implicit_gemm {
namespace {

constexpr int kWarps = 4;  // of a block: one warpgroup
constexpr int kThreads = 32 * kWarps;
constexpr int kBlockPixels = 256;
constexpr int kTiles = kBlockPixels / kWarps / 16;  // of 16 pixels, of a warp
constexpr int kStages = 3;  // rows of filters in shared memory: one in use, two on their way
/// Blocks per multiprocessor for which the compiler leaves enough registers: a thread has 128 sums, and needs
/// about 100 registers besides.
constexpr int kResidentBlocks = 2;

// Bytes of shared memory.
constexpr int kTapBytes = kColumns * kNarrowRow;  // kDepth x kColumns elements of the filters
constexpr int kFilterBytes = kTaps * kTapBytes;   // of a stage
constexpr int kResultBytes = kBlockPixels * kWideRow;

CONVOY_HOST_DEVICE constexpr int slab_bytes(int halo) {
  return (kZeroRows + kBlockPixels + 2 * halo) * kNarrowRow;
}
constexpr int shared_bytes(int halo) { return kStages * kFilterBytes + 2 * slab_bytes(halo); }

static_assert(kWarps == 4 && kColumns == 64 &&
              kDepth == 16);                             // one warpgroup, and the shape of its instruction
static_assert(kTapBytes % cuda::kSharedAlignment == 0);  // so each tap's filters begin where a pattern may
static_assert(kResultBytes <= shared_bytes(0));          // it takes the place of filters and pixels
static_assert(shared_bytes(kMaxWidth + 1) <= kMaxSharedBytes);

/// The sums of a warp: kTiles tiles of 16 pixels, all kColumns channels, as fragments of d (tensor_core.h).
using Sums = float[kTiles][kColumns / 8][4];

/// Starts to copy a slab of the block's pixels and their halo. Row kZeroRows is the first pixel of the halo.
/// Pixels before the first image and after the last one are zeros.
template <class T>
__device__ void fetch_pixels(const Geometry& g, const T* x, int first_pixel, int slab, unsigned char* to) {
  const int chunks = 2 * (kBlockPixels + 2 * g.halo());
  for (int i = static_cast<int>(threadIdx.x); i < chunks; i += kThreads) {
    const int pixel = first_pixel - g.halo() + i / 2;
    const bool is_inside = pixel >= 0 && pixel < g.pixels;
    const std::int64_t offset =
        is_inside ? std::int64_t{pixel} * g.inputs + slab * kDepth + i % 2 * kPack : 0;
    cuda::copy_async(to + narrow_offset(kZeroRows + i / 2, i % 2), x + offset, is_inside);
  }
}

/// Starts to copy the filters [outputs, 9, inputs] of a slab, for the three taps of row `ky`: 16 bytes per
/// thread and tap. A row of shared memory has an output channel's kDepth inputs.
template <class T>
__device__ void fetch_filters(const Geometry& g, const T* filter, int first_column, int slab, int ky,
                              unsigned char* to) {
  const int row = static_cast<int>(threadIdx.x) / 2, chunk = static_cast<int>(threadIdx.x) % 2;
  for (int kx = 0; kx < kTaps; ++kx, to += kTapBytes) {
    const std::int64_t at = std::int64_t{first_column + row} * 9 + kTaps * ky + kx;
    cuda::copy_async(to + narrow_offset(row, chunk), filter + at * g.inputs + slab * kDepth + chunk * kPack,
                     true);
  }
}

/// Adds the product of a slab and the three taps of row `ky`. `row` is the row of the slab that this lane
/// addresses in the warp's first tile, and `taps` has taps_inside() of its pixel in each tile. Each
/// instruction multiplies a tile of 16 rows of each of the four warps. While those of a tap run, the warps
/// load the pixels of the next one. All have ended when the function returns.
template <class T>
__device__ void multiply(const Geometry& g, const unsigned char* pixels, const unsigned char* filters, int ky,
                         int row, const unsigned (&taps)[kTiles], Sums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t a[2][kTiles][4];  // of this tap and of the next one
  const auto load = [&](int kx) {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      // A tap is a shift by a number of rows. Outside the image, the lane reads zeros in the same banks.
      const int shifted = row + 16 * t + (ky - 1) * g.width + kx - 1;
      const bool is_inside = (taps[t] >> (kTaps * ky + kx) & 1u) != 0;
      cuda::load_matrices(pixels + narrow_offset(is_inside ? shifted : shifted & (kZeroRows - 1), lane / 16),
                          a[kx % 2][t]);
    }
  };
#pragma unroll
  for (int t = 0; t < kTiles; ++t) cuda::pin_registers(sums[t]);
  load(0);
#pragma unroll
  for (int kx = 0; kx < kTaps; ++kx) {
    const std::uint64_t b = cuda::matrix_descriptor<false>(filters + kx * kTapBytes);
    cuda::warpgroup_fence();
#pragma unroll
    for (int t = 0; t < kTiles; ++t) cuda::warpgroup_multiply_add<T, false>(sums[t], a[kx % 2][t], b);
    cuda::warpgroup_commit();
    if (kx + 1 < kTaps) {
      cuda::warpgroup_wait<1>();  // those of the previous tap have read the registers that load() sets
      load(kx + 1);
    }
  }
  cuda::warpgroup_wait<0>();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) cuda::pin_registers(sums[t]);
}

/// Stores the sums of the block, rounded to T, for its first `rows` pixels. They are collected in `tile`, in
/// shared memory, because a lane has pairs of adjacent channels, and stored 16 bytes at a time. `y` is the
/// block's first element.
template <class T>
__device__ void store(const Geometry& g, int rows, const Sums& sums, unsigned char* tile, T* y) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int j = 0; j < kColumns / 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = (warp * kTiles + t) * 16 + half * 8 + lane / 4;
        const cuda::Pack<T, 2> pair{
            {cuda::narrow<T>(sums[t][j][2 * half]), cuda::narrow<T>(sums[t][j][2 * half + 1])}};
        cuda::store_pack(reinterpret_cast<T*>(tile + wide_offset(row, j)) + lane % 4 * 2, pair);
      }
  __syncthreads();
  constexpr int kPacksOfRow = kColumns / kPack;
  for (int i = thread; i < rows * kPacksOfRow; i += kThreads) {
    const int row = i / kPacksOfRow, chunk = i % kPacksOfRow;
    cuda::store_pack(y + std::int64_t{row} * g.outputs + chunk * kPack,
                     cuda::load_pack<kPack>(reinterpret_cast<const T*>(tile + wide_offset(row, chunk))));
  }
}

/// Each block computes kBlockPixels x kColumns elements of y, and each of its warps a quarter of the pixels.
template <class T>
__global__ void __launch_bounds__(kThreads, kResidentBlocks)
    conv2d_3x3_kernel(Geometry g, const T* x, const T* filter, T* y) {
  unsigned char* const filters = &cuda::shared_memory<unsigned char>();
  unsigned char* const slabs = filters + kStages * kFilterBytes;
  const int slab_size = slab_bytes(g.halo());
  const int column_tiles = g.outputs / kColumns;
  const int first_column = static_cast<int>(blockIdx.x) % column_tiles * kColumns;
  const int first_pixel = static_cast<int>(blockIdx.x) / column_tiles * kBlockPixels;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;

  cuda::allow_next_kernel();
  cuda::wait_for_previous_kernel();

  // A step multiplies a slab of pixels by row ky of the filters. A slab is fetched with the first row.
  const int slab_count = g.inputs / kDepth;
  const auto fetch = [&](int slab, int ky) {
    if (ky == 0) fetch_pixels(g, x, first_pixel, slab, slabs + slab % 2 * slab_size);
    fetch_filters(g, filter, first_column, slab, ky, filters + ky * kFilterBytes);
  };
  for (int ky = 0; ky < kStages - 1; ++ky) {
    fetch(0, ky);
    cuda::commit_copies();
  }
  if (thread < 2 * 2 * kZeroRows)  // 16 bytes of the zeros of both slabs
    cuda::store_pack(reinterpret_cast<T*>(slabs + thread / 16 * slab_size + thread % 16 * 16),
                     cuda::Pack<T, kPack>{});

  const int pixel = warp * (16 * kTiles) + lane % 16;  // of the block
  unsigned taps[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) taps[t] = taps_inside(g, first_pixel + pixel + 16 * t);
  Sums sums = {};
  for (int slab = 0; slab < slab_count; ++slab) {
#pragma unroll 1
    for (int ky = 0; ky < kTaps; ++ky) {
      cuda::wait_for_copies<kStages - 2>();
      cuda::fence_async_proxy();
      __syncthreads();  // the copies of all threads have landed, and no thread still reads the previous stage
      const int next = ky + kStages - 1, next_slab = slab + next / kTaps;
      if (next_slab < slab_count) fetch(next_slab, next % kTaps);
      cuda::commit_copies();
      multiply<T>(g, slabs + slab % 2 * slab_size, filters + ky * kFilterBytes, ky,
                  kZeroRows + g.halo() + pixel, taps, sums);
    }
  }
  __syncthreads();  // all threads have read the last stage, whose memory store() uses
  const int rows = g.pixels - first_pixel < kBlockPixels ? g.pixels - first_pixel : kBlockPixels;
  store(g, rows, sums, filters, y + std::int64_t{first_pixel} * g.outputs + first_column);
}

}  // namespace

bool supports_forward(DType dtype, const ConvSizes& s) {
  constexpr std::int64_t kMaxPixels = std::int64_t{1} << 30;
  return is_half(dtype) && s.kh == 3 && s.kw == 3 && s.stride == 1 && s.padding == 1 && s.groups == 1 &&
         s.w <= kMaxWidth && s.n * s.h * s.w <= kMaxPixels && s.i > 0 && s.i % kDepth == 0 && s.o > 0 &&
         s.o % kColumns == 0;
}

bool has_wgmma(const CudaStream& stream) {
  int major = 0, minor = 0;
  CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, stream.device()));
  CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, stream.device()));
  return major == 9 && minor == 0;
}

void forward(CudaStream& stream, ConstView x, ConstView filter, View y) {
  const Geometry g(x.shape, y.shape);
  if (g.pixels == 0) return;
  constexpr ElementTypes<float16, bfloat16> kTypes{"a tensor core"};
  dispatch(kTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(LaunchStart::early, stream,
           blocks_for(g.pixels, kBlockPixels) * static_cast<unsigned>(g.outputs / kColumns), kThreads,
           static_cast<std::size_t>(shared_bytes(g.halo())), conv2d_3x3_kernel<T>, g, x.as<T>(),
           filter.as<T>(), y.as<T>());
  });
}

}  // namespace convoy::kernels::implicit_gemm
