// Convolution with 3x3 filters and stride 2, together with the 1x1 convolution next to it. Start with conv2d_3x3.cu.
//
// With stride 2 a tap meets only every second row and column of x. So x is read as four *phases*: phase 2 p + q has rows
// 2 i + p and columns 2 j + q, and looks like an image of y's size. Each of the nine taps belongs to one phase, and within
// it is a shift by at most one pixel, as with stride 1:
//
//   phase 0: the middle tap, and the 1x1 filter      phase 1: the taps on its left and right
//   phase 2: those above and below                   phase 3: the four in the corners
//
// A step of a tile is a phase of 64 input channels, with the filters of its taps. The gradient of x computes each phase
// by itself, from dy and the taps of the phase; the 1x1 convolution adds its dy to phase 0.
#include <algorithm>

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "tests/cuda_emulator/convolution/conv2d_3x3.h"
#include "tests/cuda_emulator/convolution/finished_tile.h"
#include "tests/cuda_emulator/convolution/slab.h"

namespace convoy::kernels::hopper {
namespace {

constexpr int kPhases = 4, kMaxTaps = 4;
constexpr int kConsumers = 2;
constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
constexpr unsigned kTurn = 1, kTile = 3;  // named barriers; consumer c has the c-th one of each
constexpr int kColumns = 136;             // of a multiplication
constexpr int kSlabs = 4, kFilterStages = 2;
constexpr unsigned kFilterPlane = plane_bytes(kChannels), kTapBytes = kPacks * kFilterPlane;

constexpr int pixels_of(int pitch) { return kColumns + 2 * pitch + 2; }
using Pixels = Slab<pixels_of(Images<0>::kMaxPitch)>;

struct Shared {
  unsigned char filters[kFilterStages][kMaxTaps * kTapBytes];
  unsigned char slabs[kSlabs][Pixels::kBytes];
  ChannelSums<2> sums[kConsumers][2][kWarpgroup];  // of each thread, which lacks registers for them
  cuda::Mbarrier filters_full[kFilterStages], filters_free[kFilterStages], full[kSlabs], free[kSlabs];
};
static_assert(sizeof(Shared) <= kMaxSharedBytes && kColumns * kPixelBytes <= Pixels::kBytes);

__host__ __device__ constexpr int taps_of(int phase) { return (1 + phase / 2) * (1 + phase % 2); }

/// A place in the filter.
struct Tap {
  int row, column;
};
/// Returns tap i of a phase.
__host__ __device__ constexpr Tap tap_of(int phase, int i) {
  const int columns = 1 + phase % 2;
  return {phase / 2 == 0 ? 1 : i / columns * 2, phase % 2 == 0 ? 1 : i % columns * 2};
}

/// What a step multiplies: 64 channels from `channel` on. `is_neighbor`: dy of the 1x1 convolution by its filter.
struct Step {
  int phase, channel;
  bool is_neighbor;
};

/// The sizes of a convolution, and its work: items of two tiles of one group of 64 output channels, with kFlipped of one
/// phase of these. Block b computes the items b, b + gridDim.x, ….
template <bool kFlipped>
struct Work {
  Images<0> images;  // of a phase
  Tiles tiles;
  int inputs, outputs, pairs;
  bool has_neighbor;

  Work(const Shape& y, int input_channels, int output_channels, bool neighbor)
      : images({y[0], y[1], y[2], input_channels}),
        tiles(images, kColumns / static_cast<int>(y[2] + 1), /*of_one_image=*/false),
        inputs(input_channels),
        outputs(output_channels),
        pairs((tiles.count() + 1) / 2),
        has_neighbor(neighbor) {}
  __host__ __device__ int items() const { return groups_of(outputs) * (kFlipped ? kPhases : 1) * pairs; }
  __device__ int phase_of(int item) const { return kFlipped ? item / pairs % kPhases : 0; }
  __device__ int first_output(int item) const { return item / pairs / (kFlipped ? kPhases : 1) * kChannels; }
  __device__ int steps(int item) const {
    return groups_of(inputs) * (!kFlipped ? kPhases : has_neighbor && phase_of(item) == 0 ? 2 : 1);
  }
  __device__ Step step_of(int item, int i) const {
    if (!kFlipped) return {i % kPhases, i / kPhases * kChannels, false};
    const int groups = groups_of(inputs);
    return {phase_of(item), i % groups * kChannels, i >= groups};
  }
  /// Returns the place in x or dx of column `column` of a row of a phase that begins at `begin` in y.
  __device__ int place_of(int phase, int begin, int column) const {
    return 4 * begin + phase / 2 * 2 * images.width() + 2 * column + phase % 2;
  }
};

/// The arrays that are read. `neighbor`: those of the 1x1 convolution, or null.
template <class T>
struct Inputs {
  const T *x, *filter, *neighbor, *neighbor_filter;
};

/// Starts to copy the filters of a step: of its taps, and behind them the 1x1 filter if that is multiplied too.
template <bool kFlipped, class T>
__device__ void copy_filters(const Work<kFlipped>& work, const Inputs<T>& in, const Step& step, int first,
                             unsigned char* to) {
  const bool adds_neighbor = !kFlipped && step.phase == 0 && work.has_neighbor;
  const int own = step.is_neighbor ? 0 : taps_of(step.phase);
  const int taps = own + (step.is_neighbor || adds_neighbor ? 1 : 0);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < taps * kChannels * kPacks; i += kWarpgroup) {
    const int pack = i % kPacks, row = i / kPacks % kChannels, index = i / kPacks / kChannels;
    const int output = first + (kFlipped ? pack * kPack : row);
    const int input = step.channel + (kFlipped ? row : pack * kPack);
    const bool is_inside = output < work.outputs && input < work.inputs;
    const Tap tap = tap_of(step.phase, index);
    const int place = tap.row * 3 + tap.column, outer = kFlipped ? input : output;
    const int inner = kFlipped ? output : input, width = kFlipped ? work.outputs : work.inputs;
    const T* const from = index < own ? in.filter + (outer * kTaps + place) * width + inner
                                      : in.neighbor_filter + outer * width + inner;
    cuda::copy_async(to + index * kTapBytes + pack * kFilterPlane + row * kRowBytes,
                     is_inside ? from : in.filter, is_inside);
  }
}

template <bool kFlipped, class T>
__device__ void produce(const Work<kFlipped>& work, const Inputs<T>& in, Shared& shared) {
  Stage<kFilterStages> filters;
  Stage<kSlabs> slab;
  for (int item = static_cast<int>(blockIdx.x); item < work.items(); item += static_cast<int>(gridDim.x))
    for (int i = 0; i < work.steps(item); ++i) {
      const Step step = work.step_of(item, i);
      shared.filters_free[filters.index].wait(filters.parity ^ 1);
      copy_filters(work, in, step, work.first_output(item), shared.filters[filters.index]);
      shared.filters_full[filters.index].arrive_after_copies();
      filters.advance();
      for (int consumer = 0; consumer < kConsumers; ++consumer) {
        shared.free[slab.index].wait(slab.parity ^ 1);
        const Rows rows = work.tiles[item % work.pairs * kConsumers + consumer].with_border();
        copy_pixels<Pixels>(work.images, step.is_neighbor ? in.neighbor : in.x, rows, /*left=*/-1,
                            pixels_of(work.images.pitch()), step.channel, shared.slabs[slab.index],
                            [&](int begin, int column) {
                              return kFlipped ? begin + column : work.place_of(step.phase, begin, column);
                            });
        shared.full[slab.index].arrive_after_copies();
        slab.advance();
      }
    }
  cuda::commit_copies();
  cuda::wait_for_copies<0>();
}

/// Starts the four multiplications of the filter `index` in shared memory and a slab from pixel `shift` on.
template <bool kFlipped, class T, int kCount>
__device__ void multiply(const unsigned char* filters, unsigned index, const unsigned char* slab,
                         unsigned shift, float (&sums)[kCount][4]) {
  const std::uint64_t a = kFlipped ? cuda::matrix_descriptor(filters, kBlockBytes, kFilterPlane)
                                   : cuda::matrix_descriptor(filters, kFilterPlane, kBlockBytes);
  const std::uint64_t b = cuda::matrix_descriptor(slab, Pixels::kPlane, kBlockBytes);
  constexpr unsigned kDepthBytes = kFlipped ? kDepth * kRowBytes : kDepth / kPack * kFilterPlane;
#pragma unroll
  for (unsigned k = 0; k < kChannels / kDepth; ++k)
    cuda::warpgroup_multiply_add<T, kFlipped>(
        sums, a + (index * kTapBytes + k * kDepthBytes) / 16,
        b + (shift * kRowBytes + k * (kDepth / kPack) * Pixels::kPlane) / 16);
}

/// Starts the multiplications of all taps of a phase.
template <bool kFlipped, int kPhase, class T, int kCount>
__device__ void multiply_phase(const unsigned char* filters, const unsigned char* slab, unsigned pitch,
                               float (&sums)[kCount][4]) {
#pragma unroll
  for (int i = 0; i < taps_of(kPhase); ++i) {
    // y[h] has row 2 h + tap - 1 of x: row h - 1 of phase 1 with tap 0, and else row h of a phase. So dx[i] of a phase
    // has row i + 1 of dy with tap 0, and else row i. Row 0 of the slab is the one above.
    const Tap tap = tap_of(kPhase, i);
    const unsigned row = kFlipped ? tap.row == 0 ? 2 : 1 : tap.row == 0 ? 0 : 1;
    const unsigned column = kFlipped ? tap.column == 0 ? 2 : 1 : tap.column == 0 ? 0 : 1;
    multiply<kFlipped, T>(filters, static_cast<unsigned>(i), slab, row * pitch + column, sums);
  }
}

/// Where the pixels of a tile are stored: `place(begin of the row, column)`; -1 for those between the rows and images,
/// and behind the last row.
template <class Work, class Place>
class Places {
 public:
  __device__ Places(const Work& work, int item, unsigned consumer, const Place& place)
      : work_(work),
        rows_(work.tiles[item % work.pairs * kConsumers + static_cast<int>(consumer)]),
        place_(place) {}
  __device__ int operator[](int pixel) const {
    const int row = work_.images.row_of(pixel), column = pixel - row * work_.images.pitch();
    if (row >= rows_.count || column == work_.images.width()) return -1;
    const int begin = work_.images.begin_of(rows_.first + row);
    return begin < 0 ? -1 : place_(begin, column);
  }
  __device__ int pixels() const { return rows_.count * work_.images.pitch(); }

 private:
  const Work& work_;
  Rows rows_;
  Place place_;
};

/// Returns a bit for each pixel that this thread has in registers, in their order: whether it is stored.
template <class Places>
__device__ std::uint64_t stored_pixels(const Places& places) {
  std::uint64_t bits = 0;
  for (int i = 0; i < kColumns / 4; ++i) {
    const int pixel = 8 * (i / 2) + static_cast<int>(threadIdx.x) % 4 * 2 + i % 2;
    bits |= std::uint64_t{places[pixel] >= 0} << i;
  }
  return bits;
}

/// Rounds a tile and stores it. If `sums` is not null, also adds the elements with a bit in `added`.
template <class Places, class T, int kCount>
__device__ void store_tile(const Places& places, int outputs, int first, unsigned barrier,
                           const float (&values)[kCount][4], unsigned char* slab, T* y, ChannelSums<2>* sums,
                           std::uint64_t added) {
  cuda::named_barrier_sync(barrier, kWarpgroup);
  if (sums != nullptr) {
#pragma unroll
    for (int i = 0; i < 4 * kCount; ++i)
      if ((added >> (i / 4 * 2 + i % 2) & 1) != 0)
        sums->add(i / 2 % 2, cuda::widen(cuda::narrow<T>(values[i / 4][i % 4])));
  }
  round_tile<T>(values, slab, [](int, int, float) {});
  cuda::named_barrier_sync(barrier, kWarpgroup);
  for (int i = static_cast<int>(threadIdx.x) % kWarpgroup; i < places.pixels() * kPacks; i += kWarpgroup) {
    const int pack = i % kPacks, output = first + pack * kPack;
    const int to = places[i / kPacks];
    if (to < 0 || output >= outputs) continue;
    cuda::store_pack(y + to * outputs + output, load_rounded<T>(slab, i / kPacks, pack));
  }
}

/// What a consumer waits for, and what it gives back.
class Consumer {
 public:
  __device__ Consumer(Shared& shared, unsigned index) : shared_(shared), index_(index) {
    if (index == 0) return;
    slab_.advance();
    cuda::named_barrier_arrive(kTurn, kConsumers * kWarpgroup);  // consumer 0 is the first
  }
  __device__ unsigned index() const { return index_; }
  __device__ unsigned char* pixels() const { return shared_.slabs[slab_.index]; }
  __device__ auto& sums() const { return shared_.sums[index_]; }

  /// Waits for filters and pixels of the next step and for this consumer's turn, and lets `multiply` start
  /// multiplications. Returns when they have ended. `is_last`: the block has no further step.
  template <class Multiply>
  __device__ void step(bool is_last, const Multiply& multiply) {
    shared_.filters_full[filters_.index].wait(filters_.parity);
    shared_.full[slab_.index].wait(slab_.parity);
    cuda::fence_async_proxy();
    cuda::named_barrier_sync(kTurn + index_, kConsumers * kWarpgroup);
    cuda::warpgroup_fence();
    multiply(shared_.filters[filters_.index], pixels());
    cuda::warpgroup_commit();
    if (index_ == 0 || !is_last) cuda::named_barrier_arrive(kTurn + 1 - index_, kConsumers * kWarpgroup);
    cuda::warpgroup_wait<0>();
  }
  /// Gives the filters and the slab of the step back.
  __device__ void release() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      shared_.free[slab_.index].arrive();
      shared_.filters_free[filters_.index].arrive();
    }
    filters_.advance();
    for (int i = 0; i < kConsumers; ++i) slab_.advance();
  }

 private:
  Shared& shared_;
  const unsigned index_;
  Stage<kFilterStages> filters_;
  Stage<kSlabs> slab_;
};

/// The arrays that are written: y, or dx, and y of the 1x1 convolution. `has_sums`: of y.
template <class T>
struct Outputs {
  T *y, *neighbor;
  bool has_sums;
};

/// Computes a tile of y and of the 1x1 convolution. `is_last`: of the block. The multiplications are in no branch: ptxas
/// would run them one by one otherwise.
template <bool kNeighbor, class T>
__device__ void compute_item(const Work<false>& work, int item, bool is_last, Consumer& consumer,
                             const Outputs<T>& out, ChannelSums<2>& sums, ChannelSums<2>& neighbor_sums) {
  const auto pitch = static_cast<unsigned>(work.images.pitch());
  float values[kColumns / 8][4] = {}, neighbor_values[kNeighbor ? kColumns / 8 : 1][4] = {};
  const int groups = groups_of(work.inputs), first = work.first_output(item);
  for (int group = 0; group < groups; ++group) {
    consumer.step(false, [&](const unsigned char* filters, const unsigned char* pixels) {
      multiply_phase<false, 0, T>(filters, pixels, pitch, values);
      if constexpr (kNeighbor) multiply<false, T>(filters, 1, pixels, pitch + 1, neighbor_values);
    });
    consumer.release();
    consumer.step(false, [&](const unsigned char* filters, const unsigned char* pixels) {
      multiply_phase<false, 1, T>(filters, pixels, pitch, values);
    });
    consumer.release();
    consumer.step(false, [&](const unsigned char* filters, const unsigned char* pixels) {
      multiply_phase<false, 2, T>(filters, pixels, pitch, values);
    });
    consumer.release();
    consumer.step(is_last && group + 1 == groups,
                  [&](const unsigned char* filters, const unsigned char* pixels) {
                    multiply_phase<false, 3, T>(filters, pixels, pitch, values);
                  });
    if (group + 1 < groups) consumer.release();
  }
  const Places places(work, item, consumer.index(), [](int begin, int column) { return begin + column; });
  const std::uint64_t added = out.has_sums ? stored_pixels(places) : 0;
  const auto store = [&](const auto& tile, T* y, ChannelSums<2>& of_tile) {
    store_tile(places, work.outputs, first, kTile + consumer.index(), tile, consumer.pixels(), y,
               out.has_sums ? &of_tile : nullptr, added);
  };
  store(values, out.y, sums);
  if constexpr (kNeighbor) store(neighbor_values, out.neighbor, neighbor_sums);
  consumer.release();
}

/// Computes a tile of a phase of dx.
template <bool kNeighbor, int kPhase, class T>
__device__ void compute_phase(const Work<true>& work, int item, bool is_last, Consumer& consumer, T* dx) {
  const auto pitch = static_cast<unsigned>(work.images.pitch());
  float values[kColumns / 8][4] = {};
  const int groups = groups_of(work.inputs);
  constexpr bool kAdds = kNeighbor && kPhase == 0;
  for (int group = 0; group < groups; ++group) {
    consumer.step(is_last && !kAdds && group + 1 == groups,
                  [&](const unsigned char* filters, const unsigned char* pixels) {
                    multiply_phase<true, kPhase, T>(filters, pixels, pitch, values);
                  });
    if (kAdds || group + 1 < groups) consumer.release();
  }
  for (int group = 0; kAdds && group < groups; ++group) {
    consumer.step(is_last && group + 1 == groups,
                  [&](const unsigned char* filters, const unsigned char* pixels) {
                    multiply<true, T>(filters, 0, pixels, pitch + 1, values);
                  });
    if (group + 1 < groups) consumer.release();
  }
  const Places places(work, item, consumer.index(),
                      [&](int begin, int column) { return work.place_of(kPhase, begin, column); });
  store_tile(places, work.outputs, work.first_output(item), kTile + consumer.index(), values,
             consumer.pixels(), dx, nullptr, 0);
  consumer.release();
}

template <bool kFlipped, bool kNeighbor, class T>
__device__ void consume(const Work<kFlipped>& work, Consumer consumer, const Outputs<T>& out, float* sums) {
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  ChannelSums<2>& own = consumer.sums()[0][thread];
  ChannelSums<2>& neighbor = consumer.sums()[1][thread];
  own = neighbor = {};
  for (int item = static_cast<int>(blockIdx.x); item < work.items(); item += static_cast<int>(gridDim.x)) {
    const int next = item + static_cast<int>(gridDim.x);
    const bool is_last = next >= work.items();
    if constexpr (kFlipped) {
      switch (work.phase_of(item)) {
        case 0: compute_phase<kNeighbor, 0>(work, item, is_last, consumer, out.y); break;
        case 1: compute_phase<kNeighbor, 1>(work, item, is_last, consumer, out.y); break;
        case 2: compute_phase<kNeighbor, 2>(work, item, is_last, consumer, out.y); break;
        default: compute_phase<kNeighbor, 3>(work, item, is_last, consumer, out.y);
      }
    } else {
      const int first = work.first_output(item);
      compute_item<kNeighbor>(work, item, is_last, consumer, out, own, neighbor);
      if (out.has_sums && (is_last || work.first_output(next) != first)) {
        float* const to =
            sums + static_cast<int>(blockIdx.x * kConsumers + consumer.index()) * 4 * work.outputs;
        own.template store<1 + 2>(first + channel_of_thread(), 8, work.outputs, to);
        neighbor.template store<1 + 2>(first + channel_of_thread(), 8, work.outputs, to + 2 * work.outputs);
      }
    }
  }
}

/// `sums`: null, or [2 gridDim.x, 2, 2, outputs] zeros, to which each consumer stores the sums of its tiles of y, and of
/// the 1x1 convolution.
template <class T, bool kFlipped, bool kNeighbor>
__global__ void __launch_bounds__(kThreads, 1)
    conv2d_strided_kernel(const Work<kFlipped> work, const Inputs<T> in, const Outputs<T> out, float* sums) {
  auto& shared = cuda::shared_memory<Shared>();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kFilterStages; ++i) {
      shared.filters_full[i].initialize(kWarpgroup);
      shared.filters_free[i].initialize(kConsumers * kWarps);
    }
    for (int i = 0; i < kSlabs; ++i) {
      shared.full[i].initialize(kWarpgroup);
      shared.free[i].initialize(kWarps);
    }
  }
  __syncthreads();
  const unsigned warpgroup = threadIdx.x / kWarpgroup;
  if (warpgroup == 0) {
    cuda::release_registers<kProducerRegisters>();
    produce(work, in, shared);
  } else {
    cuda::acquire_registers<kConsumerRegisters>();
    consume<kFlipped, kNeighbor>(work, Consumer(shared, warpgroup - 1), out, sums);
  }
}

template <bool kFlipped, class T>
void run(CudaStream& stream, const Work<kFlipped>& work, const Inputs<T>& in, const Outputs<T>& out,
         float* sums) {
  const auto kernel = work.has_neighbor ? conv2d_strided_kernel<T, kFlipped, true>
                                        : conv2d_strided_kernel<T, kFlipped, false>;
  constexpr int kBytes = sizeof(Shared);
  stream.make_current();
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  launch(stream, static_cast<unsigned>(std::min(work.items(), stream.multiprocessors())), kThreads, kBytes,
         kernel, work, in, out, sums);
}

constexpr ElementTypes<float16, bfloat16> kTypes{"a tensor core"};

}  // namespace

bool supports_conv2d_strided(DType dtype, const ConvSizes& s) {
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;
  return is_half(dtype) && s.kh == 3 && s.kw == 3 && s.stride == 2 && s.padding == 1 && s.dilation == 1 &&
         s.groups == 1 && s.h % 2 == 0 && s.w % 2 == 0 && s.ow <= kMaxWidth && s.i % kPack == 0 &&
         s.o % kPack == 0 && s.i * s.o > 0 &&
         s.n * (s.h + 2) * (s.w + 2) * std::max(s.i, s.o) < kMaxElements && s.i * s.o * kTaps < kMaxElements;
}

void conv2d_strided(CudaStream& stream, ConstView x, ConstView filter, View y, View sums,
                    const Neighbor& neighbor) {
  const View both{sums.data, {4 * y.shape[3]}, DType::f32};
  if (y.shape.numel() == 0) {
    if (sums.data != nullptr) fill(stream, 0, both);
    return;
  }
  dispatch(kTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Work<false> work(y.shape, static_cast<int>(x.shape[3]), static_cast<int>(y.shape[3]),
                           neighbor.filter.data != nullptr);
    const std::int64_t slots = std::int64_t{kConsumers} * std::min(work.items(), stream.multiprocessors());
    const View partial{nullptr, {slots, 4 * y.shape[3]}, DType::f32};
    const cuda::Scratch scratch(stream, sums.data == nullptr ? 0 : partial.bytes());
    const View place{sums.data == nullptr ? nullptr : scratch.as<void>(), partial.shape, DType::f32};
    if (sums.data != nullptr) fill(stream, 0, place);
    run<false, T>(stream, work, {x.as<T>(), filter.as<T>(), nullptr, neighbor.filter.as<T>()},
                  {y.as<T>(), neighbor.y.as<T>(), sums.data != nullptr}, static_cast<float*>(place.data));
    if (sums.data != nullptr) sum_rows(stream, place, GradView(both));
  });
}

void conv2d_strided_data(CudaStream& stream, ConstView dy, ConstView filter, View dx, ConstView neighbor_dy,
                         ConstView neighbor_filter) {
  if (dx.shape.numel() == 0) return;
  dispatch(kTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Work<true> work(dy.shape, static_cast<int>(dy.shape[3]), static_cast<int>(dx.shape[3]),
                          neighbor_dy.data != nullptr);
    run<true, T>(stream, work, {dy.as<T>(), filter.as<T>(), neighbor_dy.as<T>(), neighbor_filter.as<T>()},
                 {dx.as<T>(), nullptr, false}, nullptr);
  });
}

}  // namespace convoy::kernels::hopper
