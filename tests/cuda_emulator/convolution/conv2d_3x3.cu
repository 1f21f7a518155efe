// Convolution with 3x3 filters as a matrix multiplication that reads each pixel from global memory once per 64
// filters. The rows of a tile of y are output channels, its columns are pixels:
//
//   y[o, n] = sum over 9 taps and the input channels c of filter[o, tap, c] x[c, n + shift of the tap]
//
// Pixels are in shared memory as a *slab*: for each 8 channels a plane [pixel][16 bytes], whose pixels are those of
// the tile's rows and one row above and below. Behind each row is a zero, which serves as the right border of this
// row and the left one of the next, as a row of zeros does between two images. So pixel n of a tap is pixel n + shift
// of the slab, and the matrix that the tensor cores read begins 16 shift bytes later. Nothing is copied per tap, and no
// border needs a branch.
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
#include "tests/cuda_emulator/convolution/finished_tile.h"
#include "tests/cuda_emulator/convolution/tiling.h"

namespace convoy::kernels::hopper {
namespace {

/// What a kernel does. `pooled` and `unpooled` are forward and flipped with indices.
enum class Mode : std::uint8_t { forward, flipped, pooled, unpooled };
constexpr bool is_flipped(Mode mode) { return mode == Mode::flipped || mode == Mode::unpooled; }

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

template <class Tiling, Mode kMode, class Work, class T>
__device__ void produce(const Work& work, const T* x, const T* filter, const std::uint8_t* indices,
                        typename Tiling::Shared& shared) {
  Stage<Tiling::kFilterStages> filters;
  Stage<Tiling::kSlabs> slab;
  int copied = -1;  // the filters that were copied last
  for (int item = static_cast<int>(blockIdx.x); item < work.items(); item += static_cast<int>(gridDim.x))
    for (int step = 0; step < work.steps(); ++step) {
      const int group = item / work.pairs;
      if (const int wanted = group * work.steps() + step; wanted != copied) {
        shared.filters_free[filters.index].wait(filters.parity ^ 1);
        copy_filters<is_flipped(kMode)>(work, filter, group * kChannels, step * kChannels,
                                        shared.filters[filters.index]);
        shared.filters_full[filters.index].arrive_after_copies();
        filters.advance();
        copied = wanted;
      }
      for (int consumer = 0; consumer < kConsumers; ++consumer) {
        shared.free[slab.index].wait(slab.parity ^ 1);
        const Rows rows = work.tiles[item % work.pairs * kConsumers + consumer].with_border();
        const int pixels = Tiling::pixels(work.images.pitch()), channel = step * kChannels;
        if constexpr (kMode == Mode::unpooled) {
          unpool_pixels<typename Tiling::Pixels>(work.images, x, indices, rows, /*left=*/-1, pixels, channel,
                                                 shared.slabs[slab.index]);
          shared.full[slab.index].arrive();
        } else {
          copy_pixels<typename Tiling::Pixels>(work.images, x, rows, /*left=*/-1, pixels, channel,
                                               shared.slabs[slab.index]);
          shared.full[slab.index].arrive_after_copies();
        }
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

/// The channels of a thread: two of a tile in registers, or with pooling a pack of the cells that it stores.
template <Mode kMode>
using Sums = ChannelSums<kMode == Mode::pooled ? kPack : 2>;

/// Stores the greatest pixel of each cell of 2 x 2 pixels of a rounded tile.
template <class Tiling, class Work, class T>
__device__ void pool_tile(const Work& work, Rows rows, int first, const unsigned char* tile, T* y,
                          std::uint8_t* indices, ChannelSums<kPack>& sums) {
  const int pitch = work.images.pitch(), pack = static_cast<int>(threadIdx.x) % kPacks;
  for (int i = static_cast<int>(threadIdx.x) % kWarpgroup; i < rows.count * pitch * kPacks; i += kWarpgroup) {
    const int pixel = i / kPacks, row = work.images.row_of(pixel), column = pixel - row * pitch;
    if (row % 2 != 0 || column % 2 != 0) continue;
    const int cell = work.images.cell_of(rows.first + row, column);
    if (cell < 0 || first + pack * kPack >= work.outputs) continue;
    auto best = load_rounded<T>(tile, pixel, pack);
    cuda::Pack<std::uint8_t, kPack> index{};
#pragma unroll
    for (int other = 1; other < 4; ++other) {
      const auto next = load_rounded<T>(tile, pixel + other / 2 * pitch + other % 2, pack);
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        const float value = cuda::widen(next.values[j]);
        if (!(value > cuda::widen(best.values[j]) || value != value)) continue;
        best.values[j] = next.values[j];
        index.values[j] = static_cast<std::uint8_t>(other);
      }
    }
    const int place = cell * work.outputs + first + pack * kPack;
    cuda::store_pack(y + place, best);
    cuda::store_pack(indices + place, index);
#pragma unroll
    for (int j = 0; j < kPack; ++j) sums.add(j, cuda::widen(best.values[j]));
  }
}

/// Rounds a tile and stores it, by way of the slab. `has_sums`: also adds its elements to `sums`.
template <class Tiling, Mode kMode, class Work, class T, int kCount>
__device__ void store_tile(const Work& work, int tile, int first, unsigned barrier,
                           const float (&values)[kCount][4], unsigned char* slab, T* y, std::uint8_t* indices,
                           bool has_sums, Sums<kMode>& sums) {
  const Rows rows = work.tiles[tile];
  cuda::named_barrier_sync(barrier, kWarpgroup);
  if constexpr (kMode == Mode::pooled) {
    round_tile<T>(values, slab, [](int, int, float) {});
    cuda::named_barrier_sync(barrier, kWarpgroup);
    return pool_tile<Tiling>(work, rows, first, slab, y, indices, sums);
  } else {
    const int top = work.images.begin_of(rows.first);
    // Where a pixel is in y; -1 for those between the rows and behind the last one.
    const auto place_of = [&](int pixel) {
      const int row = work.images.row_of(pixel), column = pixel - row * work.images.pitch();
      if (row >= rows.count || column == work.images.width()) return -1;
      const int begin = Work::kHasWidth ? top + row * work.images.width()  // of the same image
                                        : work.images.begin_of(rows.first + row);
      return begin < 0 ? -1 : begin + column;
    };
    round_tile<T>(values, slab, [&](int half, int pixel, float value) {
      if (has_sums && place_of(pixel) >= 0) sums.add(half, value);
    });
    cuda::named_barrier_sync(barrier, kWarpgroup);
    const int end = rows.count * work.images.pitch() * kPacks;
    for (int i = static_cast<int>(threadIdx.x) % kWarpgroup; i < end; i += kWarpgroup) {
      const int pack = i % kPacks, output = first + pack * kPack;
      const int place = place_of(i / kPacks);
      if (place < 0 || output >= work.outputs) continue;
      cuda::store_pack(y + place * work.outputs + output, load_rounded<T>(slab, i / kPacks, pack));
    }
  }
}

template <class Tiling, Mode kMode, class Work, class T>
__device__ void consume(const Work& work, unsigned consumer, typename Tiling::Shared& shared, T* y,
                        std::uint8_t* indices, float* sums) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup, stride = static_cast<int>(gridDim.x);
  Stage<Tiling::kFilterStages> filters;
  Stage<Tiling::kSlabs> slab;
  if (consumer == 1) {
    slab.advance();
    cuda::named_barrier_arrive(kTurn, kConsumers * kWarpgroup);  // consumer 0 is the first
  }
  Sums<kMode> channel_sums;
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
      multiply<Tiling, is_flipped(kMode), T>(shared.filters[filters.index], shared.slabs[slab.index],
                                             static_cast<unsigned>(work.images.pitch()), values);
      cuda::warpgroup_commit();
      if (consumer == 0 || !is_last || step + 1 < work.steps())
        cuda::named_barrier_arrive(kTurn + 1 - consumer, kConsumers * kWarpgroup);
      cuda::warpgroup_wait<0>();
      if (step + 1 == work.steps())
        store_tile<Tiling, kMode>(work, item % work.pairs * kConsumers + static_cast<int>(consumer),
                                  group * kChannels, kTile + consumer, values, shared.slabs[slab.index], y,
                                  indices, sums != nullptr, channel_sums);
      const bool needs_filters = work.steps() == 1 && !is_last && next_group == group;
      __syncwarp();
      if (thread % 32 == 0) {
        shared.free[slab.index].arrive();
        if (!needs_filters) shared.filters_free[filters.index].arrive();
      }
      if (!needs_filters) filters.advance();
      for (int i = 0; i < kConsumers; ++i) slab.advance();
    }
    if (sums != nullptr && (is_last || next_group != group)) {
      const int slot = static_cast<int>(blockIdx.x * kConsumers + consumer), first = group * kChannels;
      if constexpr (kMode == Mode::pooled)  // the lanes of a pack
        channel_sums.template store<8 + 16>(first + thread % kPacks * kPack, 1, work.outputs,
                                            sums + (slot * kWarps + thread / 32) * 2 * work.outputs);
      else
        channel_sums.template store<1 + 2>(first + channel_of_thread(), 8, work.outputs,
                                           sums + slot * 2 * work.outputs);
    }
  }
}

/// `sums`: null, or [2 gridDim.x, 2, outputs] zeros, to which each consumer stores the sums of its tiles; with pooling
/// [8 gridDim.x, 2, outputs], to which each of its warps does. `indices` are read or written, as `kMode` says.
template <class T, int kWidth, bool kResident, Mode kMode>
__global__ void __launch_bounds__(kThreads, 1)
    conv2d_3x3_kernel(const Work<kWidth> work, const T* x, const T* filter, T* y, std::uint8_t* indices,
                      float* sums) {
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
    produce<Sizes, kMode>(work, x, filter, indices, shared);
  } else {
    cuda::acquire_registers<kConsumerRegisters>();
    consume<Sizes, kMode>(work, warpgroup - 1, shared, y, indices, sums);
  }
}

/// Calls f with std::integral_constant of the width, or of 0 for any other one or with pooling, whether there is one
/// step, and the mode.
template <class F>
void choose(std::int64_t width, bool is_resident, Mode mode, const F& f) {
  const auto with_resident = [&](auto constant_width, auto constant_mode) {
    if (is_resident) return f(constant_width, std::true_type{}, constant_mode);
    f(constant_width, std::false_type{}, constant_mode);
  };
  const auto with_width = [&](auto constant_mode) {
    if (width == 8) return with_resident(std::integral_constant<int, 8>{}, constant_mode);
    if (width == 16) return with_resident(std::integral_constant<int, 16>{}, constant_mode);
    if (width == 32) return with_resident(std::integral_constant<int, 32>{}, constant_mode);
    with_resident(std::integral_constant<int, 0>{}, constant_mode);
  };
  switch (mode) {
    case Mode::forward: return with_width(std::integral_constant<Mode, Mode::forward>{});
    case Mode::flipped: return with_width(std::integral_constant<Mode, Mode::flipped>{});
    case Mode::pooled:
      return with_resident(std::integral_constant<int, 0>{}, std::integral_constant<Mode, Mode::pooled>{});
    case Mode::unpooled:
      return with_resident(std::integral_constant<int, 0>{}, std::integral_constant<Mode, Mode::unpooled>{});
  }
}

}  // namespace

bool supports_conv2d_3x3(DType dtype, const ConvSizes& s) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;
  return is_half(dtype) && s.kh == 3 && s.kw == 3 && s.stride == 1 && s.padding == 1 && s.dilation == 1 &&
         s.groups == 1 && s.w <= kMaxWidth && s.i % kPack == 0 && s.o % kPack == 0 && s.i * s.o > 0 &&
         s.n * (s.h + 1) * (s.w + 1) * std::max(s.i, s.o) < kMaxElements && s.i * s.o * kTaps < kMaxElements;
}

void conv2d_3x3(CudaStream& stream, Filters order, ConstView x, ConstView filter, View y, View sums,
                View indices) {
  if (y.shape.numel() == 0) {
    if (sums.data != nullptr) fill(stream, 0, sums);
    return;
  }
  const bool flipped = order == Filters::flipped, has_indices = indices.data != nullptr;
  const Mode mode = has_indices ? flipped ? Mode::unpooled : Mode::pooled
                    : flipped   ? Mode::flipped
                                : Mode::forward;
  // The images as the multiplications have them.
  const Shape& whole = mode == Mode::unpooled ? y.shape : x.shape;
  const Shape input{whole[0], whole[1], whole[2], x.shape[3]};
  constexpr ElementTypes<float16, bfloat16> kTypes{"a tensor core"};
  dispatch(kTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    choose(input[2], input[3] <= kChannels, mode, [&](auto width, auto resident, auto constant_mode) {
      using Sizes = Tiling<width.value, resident.value>;
      constexpr Mode kMode = constant_mode.value;
      const auto kernel = conv2d_3x3_kernel<T, width.value, resident.value, kMode>;
      const Work<width.value> work(input, y.shape, kMode == Mode::pooled);
      const int blocks = std::min(work.items(), stream.multiprocessors());
      const std::int64_t slots = std::int64_t{kConsumers} * blocks * (kMode == Mode::pooled ? kWarps : 1);
      const View shape{nullptr, {slots, 2 * y.shape[3]}, DType::f32};
      const cuda::Scratch scratch(stream, sums.data == nullptr ? 0 : shape.bytes());
      const View partial{sums.data == nullptr ? nullptr : scratch.as<void>(), shape.shape, DType::f32};
      if (sums.data != nullptr) fill(stream, 0, partial);
      constexpr int kBytes = sizeof(typename Sizes::Shared);
      stream.make_current();
      CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
      launch(stream, static_cast<unsigned>(blocks), kThreads, kBytes, kernel, work, x.as<T>(), filter.as<T>(),
             y.as<T>(), static_cast<std::uint8_t*>(indices.data), static_cast<float*>(partial.data));
      if (sums.data != nullptr)
        sum_rows(stream, partial, GradView(View{sums.data, {2 * y.shape[3]}, DType::f32}));
    });
  });
}

}  // namespace convoy::kernels::hopper
