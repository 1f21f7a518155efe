// The gradient of the filters as a matrix multiplication whose inner dimension is the pixels. README.md
// explains the algorithm.
#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3_filter.h"

#include <algorithm>

#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3.h"
#include "convoy/kernels/cuda/implicit_gemm/filter_result.h"
#include "convoy/kernels/cuda/primitives/async_copy.h"
#include "convoy/kernels/cuda/primitives/early_start.h"
#include "convoy/kernels/cuda/primitives/tensor_core.h"

namespace convoy::kernels::implicit_gemm {
namespace {

constexpr std::int64_t kMultiprocessors = 132;  // of an H100

/// The part of the work that a block has.
struct FilterBlock {
  int first_output, first_input, first_pixel, steps, range;

  __device__ explicit FilterBlock(const FilterGeometry& g) {
    const int index = static_cast<int>(blockIdx.x);
    const int output_tiles = g.image.outputs / kFilterOutputs;
    const int tile = index % (output_tiles * g.input_tiles);
    range = index / (output_tiles * g.input_tiles);
    first_output = tile / g.input_tiles * kFilterOutputs;
    first_input = tile % g.input_tiles * kFilterInputs;
    first_pixel = g.first_step(range) * kStepPixels;
    steps = g.first_step(range + 1) - g.first_step(range);
  }
};

/// Starts to copy the pixels of dy for a step. Pixels after the last image are zeros.
template <class T>
__device__ void fetch_slopes(const FilterGeometry& g, const FilterBlock& block, const T* dy, int step,
                             unsigned char* to) {
  constexpr int kChunks = kFilterOutputs / kPack, kRows = kFilterThreads / kChunks;
  static_assert(kStepPixels % kRows == 0);
  const int chunk = static_cast<int>(threadIdx.x) % kChunks;
  const int first = block.first_pixel + step * kStepPixels;
#pragma unroll
  for (int pass = 0; pass < kStepPixels / kRows; ++pass) {
    const int row = static_cast<int>(threadIdx.x) / kChunks + pass * kRows;
    const bool is_inside = first + row < g.image.pixels;
    const std::int64_t offset =
        is_inside ? std::int64_t{first + row} * g.image.outputs + block.first_output + chunk * kPack : 0;
    cuda::copy_async(to + wide_offset(row, chunk), dy + offset, is_inside);
  }
}

/// Starts to copy the rows of x that a step needs and the previous one does not. kFilterWarps threads copy a
/// row. Pixels before the first image and after the last one, and channels that do not exist, are zeros.
template <class T>
__device__ void fetch_rows(const FilterGeometry& g, const FilterBlock& block, const T* x, int step,
                           unsigned char* ring) {
  const int chunk = static_cast<int>(threadIdx.x) % kFilterWarps;
  const int channel = block.first_input + chunk * kPack;
  const int overlap = step == 0 ? 0 : 2 * g.image.halo();
  const int rows = kStepPixels + 2 * g.image.halo() - overlap;
  const int first_pixel = block.first_pixel + step * kStepPixels - g.image.halo() + overlap;
  const int first_place = g.ring_start(step) + overlap;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) / kFilterWarps; i < rows; i += kFilterThreads / kFilterWarps) {
    const int pixel = first_pixel + i, place = g.wrapped(g.wrapped(first_place + i));
    const bool is_inside = pixel >= 0 && pixel < g.image.pixels && channel < g.image.inputs;
    const std::int64_t offset = is_inside ? std::int64_t{pixel} * g.image.inputs + channel : 0;
    cuda::copy_async(ring + input_offset(place, chunk), x + offset, is_inside);
  }
}

/// The place in shared memory that a lane addresses for each tap of a step: bytes from the rows of zeros on.
using TapOffsets = int[kFilterTaps];

/// Sets the offsets for a step. `pixel` is that of the lane, and `row` its place in the ring, or that plus
/// ring_rows.
__device__ void set_offsets(const FilterGeometry& g, int pixel, int row, int warp, TapOffsets& offsets) {
  // A pixel after the last image would belong to another image, none of whose taps reaches a pixel of x.
  const unsigned taps = taps_inside(g.image, pixel);
#pragma unroll
  for (int tap = 0; tap < kFilterTaps; ++tap) {
    // A tap is a shift by a number of rows. Outside the image, the lane reads zeros in the same banks.
    const int place = g.wrapped(row + (tap / kTaps - 1) * g.image.width + tap % kTaps - 1);
    const bool is_inside = (taps >> tap & 1u) != 0;
    offsets[tap] = input_offset(is_inside ? kZeroRows + place : place & (kZeroRows - 1), warp);
  }
}

/// Adds the products of a step.
template <class T>
__device__ void multiply(const unsigned char* slopes, const unsigned char* rows, int team,
                         const TapOffsets& offsets, FilterSums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t a[2][kOutputTiles][4];
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int t = 0; t < kOutputTiles; ++t)
      cuda::load_matrices<true>(
          slopes + wide_offset(team * kTeamPixels + 16 * k + lane / 16 * 8 + lane % 8, 2 * t + lane / 8 % 2),
          a[k][t]);
#pragma unroll
  for (int tap = 0; tap < kFilterTaps; ++tap) {
    std::uint32_t b[4];  // of 32 pixels
    cuda::load_matrices<true>(rows + offsets[tap], b);
#pragma unroll
    for (int k = 0; k < 2; ++k)
#pragma unroll
      for (int t = 0; t < kOutputTiles; ++t)
        cuda::multiply_add<T>(sums[tap][t], a[k][t], b[2 * k], b[2 * k + 1]);
  }
}

/// Each block computes the gradient for kFilterOutputs x kFilterInputs channels and all taps from the pixels of
/// one range. Each of its teams has half of the pixels, and each warp of a team kPack of the input channels.
/// Stores it in `partials` [range, O, kFilterTaps, I] unless that is null, then in `dfilter`.
template <class T>
__global__ void __launch_bounds__(kFilterThreads, 1)
    conv2d_3x3_filter_kernel(FilterGeometry g, GradMode mode, const T* dy, const T* x, float* partials,
                             T* dfilter) {
  unsigned char* const slopes = &cuda::shared_memory<unsigned char>();
  unsigned char* const rows = slopes + g.stages * kStepBytes;
  unsigned char* const ring = rows + kZeroRows * kInputRow;
  const FilterBlock block(g);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32;
  const int team = thread / (32 * kFilterWarps), warp = thread / 32 % kFilterWarps;

  cuda::allow_next_kernel();
  cuda::wait_for_previous_kernel();

  int fetched = 0, stage = 0;  // stage: of the next step to fetch
  const auto fetch_next = [&] {
    if (fetched < block.steps) {
      fetch_slopes(g, block, dy, fetched, slopes + stage * kStepBytes);
      fetch_rows(g, block, x, fetched, ring);
    }
    cuda::commit_copies();
    ++fetched;
    stage = stage + 1 < g.stages ? stage + 1 : 0;
  };
  for (int s = 0; s < g.stages - 1; ++s) fetch_next();
  if (thread < kZeroRows * kInputRow / 16)
    cuda::store_pack(reinterpret_cast<T*>(rows) + thread * kPack, cuda::Pack<T, kPack>{});

  TapOffsets offsets;
  const auto prepare = [&](int step) {
    const int pixel = team * kTeamPixels + lane;  // of the step
    set_offsets(g, block.first_pixel + step * kStepPixels + pixel,
                g.ring_start(step) + g.image.halo() + pixel, warp, offsets);
  };
  prepare(0);
  FilterSums sums = {};
#pragma unroll 1
  for (int step = 0; step < block.steps; ++step) {
    if (g.stages == 3)
      cuda::wait_for_copies<1>();
    else
      cuda::wait_for_copies<0>();
    __syncthreads();  // the copies of all threads have landed, and no thread still reads the previous step
    const int current = stage + 1 < g.stages ? stage + 1 : 0;  // stages - 1 steps after it are fetched
    // One warp of each team shares a tensor core. While one prepares, the other multiplies.
    if (team == 0) {
      fetch_next();
      prepare(step);
    }
    multiply<T>(slopes + current * kStepBytes, rows, team, offsets, sums);
    if (team != 0) {
      fetch_next();
      prepare(step + 1);
    }
  }
  add_teams(team, thread % (32 * kFilterWarps), sums, reinterpret_cast<float*>(slopes));
  const int inputs_left = g.image.inputs - block.first_input;
  const std::int64_t first =
      std::int64_t{block.first_output} * kFilterTaps * g.image.inputs + block.first_input;
  if (partials == nullptr)
    store_filter(team, warp, mode, sums, g.image.inputs, inputs_left, slopes, dfilter + first);
  else
    store_partial(
        team, warp, sums, g.image.inputs, inputs_left,
        partials + std::int64_t{block.range} * g.image.outputs * kFilterTaps * g.image.inputs + first);
}

constexpr int kSumThreads = 256;
constexpr int kSumWidth = 4;                                    // elements of a thread
constexpr int kMaxSumGroups = 8;                                // of threads that share these elements
constexpr std::int64_t kWaveThreads = kMultiprocessors * 2048;  // that an H100 runs at a time

/// Adds partial results [ranges, size] and rounds. A block has kSumThreads / groups packs of kSumWidth elements.
/// Group j adds the ranges j, j + groups and so on; then the sums of the groups are added in order.
template <class T>
__global__ void __launch_bounds__(kSumThreads)
    conv2d_3x3_filter_sum_kernel(std::int64_t size, int ranges, int groups, GradMode mode,
                                 const float* partials, T* dfilter) {
  using Sum = cuda::Pack<float, kSumWidth>;
  Sum* const group_sums = &cuda::shared_memory<Sum>();
  const int packs = kSumThreads / groups, thread = static_cast<int>(threadIdx.x);
  const int pack = thread % packs, group = thread / packs;
  const std::int64_t element = (std::int64_t{blockIdx.x} * packs + pack) * kSumWidth;
  const auto add = [](Sum& sum, const Sum& more) {
#pragma unroll
    for (int e = 0; e < kSumWidth; ++e) sum.values[e] += more.values[e];
  };
  cuda::allow_next_kernel();
  cuda::wait_for_previous_kernel();
  Sum sum{};
  if (element < size) {
#pragma unroll 8
    for (int range = group; range < ranges; range += groups)
      add(sum, cuda::load_pack<kSumWidth>(partials + range * size + element));
  }
  group_sums[thread] = sum;
  __syncthreads();
  if (group != 0 || element >= size) return;
  for (int other = 1; other < groups; ++other) {
    const Sum more = group_sums[other * packs + pack];
    add(sum, more);
  }
  if (mode == GradMode::accumulate) {
    const auto before = cuda::load_pack<kSumWidth>(dfilter + element);
#pragma unroll
    for (int e = 0; e < kSumWidth; ++e) sum.values[e] += cuda::widen(before.values[e]);
  }
  cuda::Pack<T, kSumWidth> rounded;
#pragma unroll
  for (int e = 0; e < kSumWidth; ++e) rounded.values[e] = cuda::narrow<T>(sum.values[e]);
  cuda::store_pack(dfilter + element, rounded);
}

static_assert(2 * kStepBytes + (kZeroRows + 2 * kStepPixels + 2 * (kMaxWidth + 1)) * kInputRow <=
              kMaxSharedBytes);
static_assert(kFilterTileBytes <= kMaxSharedBytes);

}  // namespace

bool supports_backward_filter(DType dtype, const ConvSizes& s) {
  constexpr std::int64_t kMaxPixels = std::int64_t{1} << 30;
  return is_half(dtype) && s.kh == 3 && s.kw == 3 && s.stride == 1 && s.padding == 1 && s.groups == 1 &&
         s.h >= 1 && s.w >= 1 && s.w <= kMaxWidth && s.n * s.h * s.w <= kMaxPixels && s.i > 0 &&
         s.i % 16 == 0 && s.o > 0 && s.o % kFilterOutputs == 0;
}

int filter_ranges(const ConvSizes& s) {
  // In steps, about 0.5 us each: the first copies and the result of a block, and the kernel that adds.
  constexpr std::int64_t kBlockSteps = 4, kSumSteps = 8;
  const std::int64_t steps = blocks_for(s.n * s.h * s.w, kStepPixels);
  const std::int64_t tiles = s.o / kFilterOutputs * blocks_for(s.i, kFilterInputs);
  std::int64_t best = 1, best_cost = 0;
  for (std::int64_t ranges = 1; ranges <= std::clamp<std::int64_t>(steps, 1, 2 * kMultiprocessors);
       ++ranges) {
    const std::int64_t waves = (tiles * ranges + kMultiprocessors - 1) / kMultiprocessors;
    const std::int64_t cost =
        waves * ((steps + ranges - 1) / ranges + kBlockSteps) + (ranges > 1 ? kSumSteps : 0);
    if (ranges > 1 && cost >= best_cost) continue;
    best = ranges;
    best_cost = cost;
  }
  return static_cast<int>(best);
}

void backward_filter(CudaStream& stream, ConstView dy, ConstView x, GradView dfilter, int ranges) {
  if (!dfilter.wanted() || dfilter.numel() == 0) return;
  const FilterGeometry g(x.shape, dy.shape, ranges);
  const std::int64_t size = dfilter.numel();
  const cuda::Scratch partials(
      stream,
      ranges > 1 ? static_cast<std::size_t>(size) * static_cast<unsigned>(ranges) * sizeof(float) : 0);
  float* const sums = ranges > 1 ? partials.as<float>() : nullptr;
  constexpr ElementTypes<float16, bfloat16> kTypes{"a tensor core"};
  dispatch(kTypes, dfilter.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(LaunchStart::early, stream, g.blocks(), kFilterThreads, g.shared_bytes(),
           conv2d_3x3_filter_kernel<T>, g, dfilter.mode, dy.as<T>(), x.as<T>(), sums, dfilter.as<T>());
    if (ranges == 1) return;
    int groups = 1;
    while (groups < kMaxSumGroups && 2 * groups <= ranges && 2 * groups * size <= kSumWidth * kWaveThreads)
      groups *= 2;
    launch(LaunchStart::early, stream, blocks_for(size, kSumThreads / groups * kSumWidth), kSumThreads,
           kSumThreads * kSumWidth * sizeof(float), conv2d_3x3_filter_sum_kernel<T>, size, ranges, groups,
           dfilter.mode, sums, dfilter.as<T>());
  });
}

}  // namespace convoy::kernels::implicit_gemm
