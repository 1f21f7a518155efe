// Convolution with 3x3 filters as a matrix multiplication that reads each pixel from global memory once per 64
// filters. The rows of a tile of y are output channels, its columns are pixels:
//
//   y[o, n] = sum over 9 taps and the input channels c of filter[o, tap, c] x[c, n + shift of the tap]
//
// Pixels are in shared memory as a *slab*: for each 8 channels a plane [pixel][16 bytes], whose pixels are those of
// the tile's rows and one row above and below. Behind each row is a zero, which serves as the right border of this
// row and the left one of the next, as a row of zeros does between two images. So pixel n of a tap is pixel n + shift of the slab, and the matrix that the
// tensor cores read begins 16 shift bytes later. Nothing is copied per tap, and no border needs a branch.
//
// A block has three warpgroups. The *producer* copies slabs and filters to shared memory. Two *consumers* compute
// a tile each, in turns: while one stores its tile, the tensor cores work for the other. A step of a tile are 64
// input channels, 36 multiplications. Mbarriers say when a slab is full, and when it is free again.
#include "tests/cuda_emulator/convolution/conv2d_3x3.h"

#include <algorithm>

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "tests/cuda_emulator/convolution/tiling.h"

namespace convoy::kernels::hopper {
namespace {

/// Starts to copy the filters of a step: outputs from `first` on, and inputs from `channel` on.
template <bool kFlipped, class Work, class T>
__device__ void copy_filters(const Work& work, const T* filter, int first, int channel, unsigned char* to) {
#pragma unroll 1  // few registers: kProducerRegisters
  for (int i = static_cast<int>(threadIdx.x); i < kTaps * kChannels * kPacks; i += kWarpgroup) {
    const int pack = i % kPacks, row = i / kPacks % kChannels, tap = i / kPacks / kChannels;
    // A row is an output channel and a pack is 8 inputs; flipped, it is the other way round.
    const int output = first + (kFlipped ? pack * kPack : row);
    const int input = channel + (kFlipped ? row : pack * kPack);
    const bool is_inside = output < work.outputs && input < work.inputs;
    const int from = kFlipped ? (input * kTaps + kTaps - 1 - tap) * work.outputs + output
                              : (output * kTaps + tap) * work.inputs + input;
    cuda::copy_async(to + tap * kTapBytes + pack * kFilterPlane + row * kRowBytes,
                     filter + (is_inside ? from : 0), is_inside);
  }
}

template <class Tiling, bool kFlipped, class Work, class T>
__device__ void produce(const Work& work, const T* x, const T* filter, typename Tiling::Shared& shared) {
  Stage<Tiling::kFilterStages> filters;
  Stage<Tiling::kSlabs> slab;
  int copied = -1;  // the filters that were copied last
  for (int item = static_cast<int>(blockIdx.x); item < work.items(); item += static_cast<int>(gridDim.x))
    for (int step = 0; step < work.steps(); ++step) {
      const int group = item / work.pairs;
      if (const int wanted = group * work.steps() + step; wanted != copied) {
        shared.filters_free[filters.index].wait(filters.parity ^ 1);
        copy_filters<kFlipped>(work, filter, group * kChannels, step * kChannels,
                               shared.filters[filters.index]);
        shared.filters_full[filters.index].arrive_after_copies();
        filters.advance();
        copied = wanted;
      }
      for (int consumer = 0; consumer < kConsumers; ++consumer) {
        shared.free[slab.index].wait(slab.parity ^ 1);
        const Rows rows = work.tiles[item % work.pairs * kConsumers + consumer].with_border();
        copy_pixels<typename Tiling::Pixels>(work.images, x, rows, /*left=*/-1,
                                             Tiling::pixels(work.images.pitch()), step * kChannels,
                                             shared.slabs[slab.index]);
        shared.full[slab.index].arrive_after_copies();
        slab.advance();
      }
    }
  cuda::commit_copies();
  cuda::wait_for_copies<0>();
}

/// Starts the 36 multiplications of a step.
template <class Tiling, bool kFlipped, class T, int kCount>
__device__ void multiply(const unsigned char* filters, const unsigned char* slab, unsigned pitch,
                         float (&sums)[kCount][4]) {
  // Flipped, the rows of a plane are the inputs, so that the matrix of the filters is transposed.
  const std::uint64_t a = kFlipped ? cuda::matrix_descriptor(filters, kBlockBytes, kFilterPlane)
                                   : cuda::matrix_descriptor(filters, kFilterPlane, kBlockBytes);
  const std::uint64_t b = cuda::matrix_descriptor(slab, Tiling::kPlane, kBlockBytes);
  constexpr unsigned kDepthBytes = kFlipped ? kDepth * kRowBytes : kDepth / kPack * kFilterPlane;
#pragma unroll
  for (unsigned tap = 0; tap < kTaps; ++tap)
#pragma unroll
    for (unsigned k = 0; k < kChannels / kDepth; ++k) {
      const unsigned shift = tap / 3 * pitch + tap % 3;
      // Descriptors have addresses in units of 16 bytes.
      cuda::warpgroup_multiply_add<T, kFlipped>(
          sums, a + (tap * kTapBytes + k * kDepthBytes) / 16,
          b + (shift * kRowBytes + k * (kDepth / kPack) * Tiling::kPlane) / 16);
    }
}

/// The sums of a thread's two output channels over its pixels.
class ChannelSums {
 public:
  __device__ void add(int half, float value) {
    sums_[half] += value;
    squares_[half] += value * value;
  }
  /// Adds those of the four lanes that have the same channels, and stores them in `to` [2, outputs].
  __device__ void store(int channel, int outputs, float* to) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = of_four_lanes(sums_[half]), square = of_four_lanes(squares_[half]);
      if (threadIdx.x % 4 == 0 && channel + 8 * half < outputs) {
        to[channel + 8 * half] = sum;
        to[channel + 8 * half + outputs] = square;
      }
      sums_[half] = squares_[half] = 0;
    }
  }

 private:
  float sums_[2] = {}, squares_[2] = {};

  __device__ static float of_four_lanes(float value) {
    value += __shfl_xor_sync(0xffffffffu, value, 1);
    return value + __shfl_xor_sync(0xffffffffu, value, 2);
  }
};

/// Rounds a tile and stores it, by way of the slab, from which all warps of the consumer have read.
template <class Tiling, class Work, class T, int kCount>
__device__ void store_tile(const Work& work, int tile, int first, unsigned barrier,
                           const float (&values)[kCount][4], unsigned char* slab, T* y, bool has_sums,
                           ChannelSums& sums) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int channel = thread / 32 * 16 + thread % 32 / 4;
  const Rows rows = work.tiles[tile];
  const std::int64_t top = work.images.begin_of(rows.first);
  // Where a pixel is in y; -1 for those between the rows and behind the last one.
  const auto place_of = [&](int pixel) -> std::int64_t {
    const int row = work.images.row_of(pixel), column = pixel - row * work.images.pitch();
    if (row >= rows.count || column == work.images.width()) return -1;
    const std::int64_t begin = Work::kHasWidth ? top + row * work.images.width()  // of the same image
                                               : work.images.begin_of(rows.first + row);
    return begin < 0 ? -1 : begin + column;
  };
  cuda::named_barrier_sync(barrier, kWarpgroup);
#pragma unroll
  for (int j = 0; j < kCount; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int pixel = 8 * j + thread % 4 * 2 + e % 2;
      const T rounded = cuda::narrow<T>(values[j][e]);
      *reinterpret_cast<T*>(slab + pixel * Tiling::kPixelBytes + (channel + e / 2 * 8) * sizeof(T)) = rounded;
      if (has_sums && place_of(pixel) >= 0) sums.add(e / 2, cuda::widen(rounded));
    }
  cuda::named_barrier_sync(barrier, kWarpgroup);
  for (int i = thread; i < rows.count * work.images.pitch() * kPacks; i += kWarpgroup) {
    const int pack = i % kPacks, pixel = i / kPacks, output = first + pack * kPack;
    const std::int64_t place = place_of(pixel);
    if (place < 0 || output >= work.outputs) continue;
    const auto* const from = reinterpret_cast<const T*>(slab + pixel * Tiling::kPixelBytes) + pack * kPack;
    cuda::store_pack(y + place * work.outputs + output, cuda::load_pack<kPack>(from));
  }
}

template <class Tiling, bool kFlipped, class Work, class T>
__device__ void consume(const Work& work, unsigned consumer, typename Tiling::Shared& shared, T* y,
                        float* sums) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, stride = static_cast<int>(gridDim.x);
  Stage<Tiling::kFilterStages> filters;
  Stage<Tiling::kSlabs> slab;
  if (consumer == 1) {
    slab.advance();
    cuda::named_barrier_arrive(kTurn, kConsumers * kWarpgroup);  // consumer 0 is the first
  }
  ChannelSums channel_sums;
  float values[Tiling::kColumns / 8][4];
  for (int item = static_cast<int>(blockIdx.x); item < work.items(); item += stride) {
    const int group = item / work.pairs, next_group = (item + stride) / work.pairs;
    const bool is_last = item + stride >= work.items();
#pragma unroll
    for (auto& four : values)
#pragma unroll
      for (float& value : four) value = 0;
    for (int step = 0; step < work.steps(); ++step) {
      shared.filters_full[filters.index].wait(filters.parity);
      shared.full[slab.index].wait(slab.parity);
      cuda::fence_async_proxy();
      cuda::named_barrier_sync(kTurn + consumer, kConsumers * kWarpgroup);
      cuda::warpgroup_fence();
      multiply<Tiling, kFlipped, T>(shared.filters[filters.index], shared.slabs[slab.index],
                                    static_cast<unsigned>(work.images.pitch()), values);
      cuda::warpgroup_commit();
      if (consumer == 0 || !is_last || step + 1 < work.steps())
        cuda::named_barrier_arrive(kTurn + 1 - consumer, kConsumers * kWarpgroup);
      cuda::warpgroup_wait<0>();
      if (step + 1 == work.steps())
        store_tile<Tiling>(work, item % work.pairs * kConsumers + static_cast<int>(consumer),
                           group * kChannels, kTile + consumer, values, shared.slabs[slab.index], y,
                           sums != nullptr, channel_sums);
      const bool needs_filters = work.steps() == 1 && !is_last && next_group == group;
      __syncwarp();
      if (thread % 32 == 0) {
        shared.free[slab.index].arrive();
        if (!needs_filters) shared.filters_free[filters.index].arrive();
      }
      if (!needs_filters) filters.advance();
      for (int i = 0; i < kConsumers; ++i) slab.advance();
    }
    if (sums != nullptr && (is_last || next_group != group))
      channel_sums.store(
          group * kChannels + thread / 32 * 16 + thread % 32 / 4, work.outputs,
          sums + (blockIdx.x * kConsumers + consumer) * 2 * static_cast<unsigned>(work.outputs));
  }
}

/// `sums`: null, or [2 gridDim.x, 2, outputs] zeros, to which each consumer stores the sums of its tiles.
template <class T, int kWidth, bool kResident, bool kFlipped>
__global__ void __launch_bounds__(kThreads, 1)
    conv2d_3x3_kernel(const Work<kWidth> work, const T* x, const T* filter, T* y, float* sums) {
  using Sizes = Tiling<kWidth, kResident>;
  auto& shared = cuda::shared_memory<typename Sizes::Shared>();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Sizes::kFilterStages; ++i) {
      shared.filters_full[i].initialize(kWarpgroup);
      shared.filters_free[i].initialize(kConsumers * kWarps);
    }
    for (int i = 0; i < Sizes::kSlabs; ++i) {
      shared.full[i].initialize(kWarpgroup);
      shared.free[i].initialize(kWarps);
    }
  }
  __syncthreads();
  const unsigned warpgroup = threadIdx.x / kWarpgroup;
  if (warpgroup == 0) {
    cuda::release_registers<kProducerRegisters>();
    produce<Sizes, kFlipped>(work, x, filter, shared);
  } else {
    cuda::acquire_registers<kConsumerRegisters>();
    consume<Sizes, kFlipped>(work, warpgroup - 1, shared, y, sums);
  }
}

/// Calls f with std::integral_constant of the width, or of 0 for any other one, whether there is one step, and whether filters are flipped.
template <class F>
void choose(std::int64_t width, bool is_resident, bool is_flipped, const F& f) {
  const auto with_bool = [](bool value, const auto& g) {
    return value ? g(std::true_type{}) : g(std::false_type{});
  };
  with_bool(is_resident, [&](auto resident) {
    with_bool(is_flipped, [&](auto flipped) {
      if (width == 8) return f(std::integral_constant<int, 8>{}, resident, flipped);
      if (width == 16) return f(std::integral_constant<int, 16>{}, resident, flipped);
      if (width == 32) return f(std::integral_constant<int, 32>{}, resident, flipped);
      return f(std::integral_constant<int, 0>{}, resident, flipped);
    });
  });
}

}  // namespace

bool supports_conv2d_3x3(DType dtype, const ConvSizes& s) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;
  return is_half(dtype) && s.kh == 3 && s.kw == 3 && s.stride == 1 && s.padding == 1 && s.dilation == 1 &&
         s.groups == 1 && s.w <= kMaxWidth && s.i % kPack == 0 && s.o % kPack == 0 && s.i * s.o > 0 &&
         s.n * (s.h + 1) * (s.w + 1) * std::max(s.i, s.o) < kMaxElements && s.i * s.o * kTaps < kMaxElements;
}

void conv2d_3x3(CudaStream& stream, Filters order, ConstView x, ConstView filter, View y, View sums) {
  if (y.shape.numel() == 0) {
    if (sums.data != nullptr) fill(stream, 0, sums);
    return;
  }
  constexpr ElementTypes<float16, bfloat16> kTypes{"a tensor core"};
  dispatch(kTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    choose(x.shape[2], x.shape[3] <= kChannels, order == Filters::flipped,
           [&](auto width, auto resident, auto flipped) {
             using Sizes = Tiling<width.value, resident.value>;
             const auto kernel = conv2d_3x3_kernel<T, width.value, resident.value, flipped.value>;
             const Work<width.value> work(x.shape, y.shape);
             const int blocks = std::min(work.items(), stream.multiprocessors());
             const View slots{nullptr, {std::int64_t{kConsumers} * blocks, 2 * y.shape[3]}, DType::f32};
             const cuda::Scratch scratch(stream, sums.data == nullptr ? 0 : slots.bytes());
             const View partial{sums.data == nullptr ? nullptr : scratch.as<void>(), slots.shape, DType::f32};
             if (sums.data != nullptr) fill(stream, 0, partial);
             constexpr int kBytes = sizeof(typename Sizes::Shared);
             stream.make_current();
             CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
             launch(stream, static_cast<unsigned>(blocks), kThreads, kBytes, kernel, work, x.as<T>(),
                    filter.as<T>(), y.as<T>(), static_cast<float*>(partial.data));
             if (sums.data != nullptr)
               sum_rows(stream, partial, GradView(View{sums.data, {2 * y.shape[3]}, DType::f32}));
           });
  });
}

}  // namespace convoy::kernels::hopper
