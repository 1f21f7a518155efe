// The gradient of 3x3 filters: for each tap a multiplication of dy, whose rows are output channels, by x, whose columns
// are input channels, summed over the pixels:
//
//   dfilter[o, tap, c] = sum over the pixels n of dy[n, o] x[n + shift of the tap, c]
//
// Both are slabs with the same number of pixels from row to row. Behind each row of dy is a zero, and so are the pixels
// behind its last row: what x has in their places does not count. So pixels are summed in the order of the slab, 16 in
// a multiplication, and a tap begins shift pixels later in x, as in conv2d_3x3.cu.
//
// A block has four warpgroups. The producer copies slabs. Each of the three consumers has a row of the filter: the sums
// of its three taps for 64 outputs and 64 inputs are 96 registers of a thread, which are stored once. It loads 16 pixels
// of dy to registers and multiplies them three times; the tensor cores read x from shared memory. While one consumer
// loads, the tensor cores work for the two others.
#include <algorithm>

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/elementwise.h"
#include "tests/cuda_emulator/convolution/conv2d_3x3.h"
#include "tests/cuda_emulator/convolution/slab.h"
#include "tests/cuda_emulator/tests/tensor_core.h"
#include "tests/cuda_emulator/tests/warpgroup.h"

namespace convoy::kernels::hopper {
namespace {

constexpr int kFilterRows = 3;  // consumers, and taps of each
constexpr int kThreads = (1 + kFilterRows) * kWarpgroup;
constexpr int kProducerRegisters = 24, kConsumerRegisters = 160;

/// The slabs of a tile for images of kWidth columns, or with 0 of up to kMaxWidth, and the shared memory of a block.
template <int kWidth>
struct Tiling {
  static constexpr int kMaxPitch = Images<kWidth>::kMaxPitch;
  static constexpr int kRows = kWidth == 32 ? 4 : 8;  // without kWidth, as many as there are pixels for
  static constexpr int kSteps =                       // multiplications of a tap
      kWidth == 0 ? 9 : (kRows * kMaxPitch + kDepth - 1) / kDepth;
  static constexpr int kPixels = kSteps * kDepth;
  using Dy = Slab<kPixels>;
  using X = Slab<kPixels + 2 * kMaxPitch + 2>;
  static constexpr int kStages =
      std::min(6, static_cast<int>((kMaxSharedBytes - 256) / (Dy::kBytes + X::kBytes)));

  struct Shared {
    unsigned char x[kStages][X::kBytes], dy[kStages][Dy::kBytes];
    cuda::Mbarrier full[kStages], free[kStages];
  };
  static_assert(kStages >= 2 && sizeof(Shared) <= kMaxSharedBytes);
};

/// The sizes of the convolution, and the work of a block: every splits-th tile of a group of 64 outputs and 64 inputs.
template <int kWidth>
struct Work {
  Images<kWidth> x, dy;
  Tiles tiles;
  int inputs, outputs, splits;

  Work(const Shape& x_shape, const Shape& dy_shape, int multiprocessors)
      : x(x_shape),
        dy(dy_shape),
        tiles(dy, kWidth == 0 ? Tiling<0>::kPixels / static_cast<int>(x_shape[2] + 1) : Tiling<kWidth>::kRows,
              /*of_one_image=*/kWidth != 0),
        inputs(static_cast<int>(x_shape[3])),
        outputs(static_cast<int>(dy_shape[3])),
        splits(std::clamp(multiprocessors / groups(), 1, tiles.count())) {}
  int groups() const { return groups_of(outputs) * groups_of(inputs); }
  __device__ int split() const { return static_cast<int>(blockIdx.x) % splits; }
  __device__ int first_output() const {
    return static_cast<int>(blockIdx.x) / splits / groups_of(inputs) * kChannels;
  }
  __device__ int first_input() const {
    return static_cast<int>(blockIdx.x) / splits % groups_of(inputs) * kChannels;
  }
};

template <class Tiling, bool kUnpooled, class Work, class T>
__device__ void produce(const Work& work, const T* dy, const T* x, const std::uint8_t* indices,
                        typename Tiling::Shared& shared) {
  Stage<Tiling::kStages> stage;
  for (int tile = work.split(); tile < work.tiles.count(); tile += work.splits) {
    const Rows rows = work.tiles[tile];
    shared.free[stage.index].wait(stage.parity ^ 1);
    copy_pixels<typename Tiling::X>(work.x, x, rows.with_border(), /*left=*/-1,
                                    Tiling::kPixels + 2 * work.x.pitch() + 2, work.first_input(),
                                    shared.x[stage.index]);
    if constexpr (kUnpooled) {
      unpool_pixels<typename Tiling::Dy>(work.dy, dy, indices, rows, /*left=*/0, Tiling::kPixels,
                                         work.first_output(), shared.dy[stage.index]);
      shared.full[stage.index].arrive();  // for these stores; the copies have an arrival of their own
    } else {
      copy_pixels<typename Tiling::Dy>(work.dy, dy, rows, /*left=*/0, Tiling::kPixels, work.first_output(),
                                       shared.dy[stage.index]);
    }
    shared.full[stage.index].arrive_after_copies();
    stage.advance();
  }
  cuda::commit_copies();
  cuda::wait_for_copies<0>();
}

/// Adds the products of a tile to the sums of a row of the filter. `x` begins with its first tap.
template <class Tiling, class T>
__device__ void multiply(const unsigned char* dy, const unsigned char* x,
                         float (&sums)[kFilterRows][kPacks][4]) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x % kWarpgroup / 32;
  // Of four matrices of 8 x 8 elements, the second and the last one have the next outputs, and the last two the next
  // pixels.
  const unsigned char* const from =
      dy + (2 * warp + lane / 8 % 2) * Tiling::Dy::kPlane + (lane / 16 * 8 + lane % 8) * kRowBytes;
  std::uint32_t a[Tiling::kSteps][4];
#pragma unroll
  for (int step = 0; step < Tiling::kSteps; ++step)
    cuda::load_transposed_matrices(from + step * kDepth * kRowBytes, a[step]);
  // Descriptors have addresses in units of 16 bytes, which are pixels.
  const std::uint64_t b = cuda::matrix_descriptor(x, kBlockBytes, Tiling::X::kPlane);
  cuda::warpgroup_fence();
#pragma unroll
  for (int step = 0; step < Tiling::kSteps; ++step)
#pragma unroll
    for (int tap = 0; tap < kFilterRows; ++tap)
      cuda::warpgroup_multiply_add<T, /*kTransposed=*/true>(sums[tap], a[step],
                                                            b + static_cast<unsigned>(step * kDepth + tap));
  cuda::warpgroup_commit();
  cuda::warpgroup_wait<0>();
}

/// `partial`: [splits, outputs, 3, 3, inputs].
template <class Tiling, class T, class Work>
__device__ void consume(const Work& work, unsigned row, typename Tiling::Shared& shared, float* partial) {
  float sums[kFilterRows][kPacks][4] = {};
  Stage<Tiling::kStages> stage;
  const unsigned shift = row * static_cast<unsigned>(work.x.pitch());
  for (int tile = work.split(); tile < work.tiles.count(); tile += work.splits) {
    shared.full[stage.index].wait(stage.parity);
    cuda::fence_async_proxy();
    multiply<Tiling, T>(shared.dy[stage.index], shared.x[stage.index] + shift * kRowBytes, sums);
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.free[stage.index].arrive();
    stage.advance();
  }
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int first = work.first_output() + thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int output = first + 8 * half;
    if (output >= work.outputs) continue;
    const std::int64_t place = std::int64_t{work.split()} * work.outputs + output;
#pragma unroll
    for (int tap = 0; tap < kFilterRows; ++tap)
#pragma unroll
      for (int j = 0; j < kPacks; ++j) {
        const int input = work.first_input() + 8 * j + thread % 4 * 2;
        if (input >= work.inputs) continue;
        cuda::store_pack(partial + (place * kTaps + static_cast<int>(row) * 3 + tap) * work.inputs + input,
                         cuda::Pack<float, 2>{{sums[tap][j][2 * half], sums[tap][j][2 * half + 1]}});
      }
  }
}

template <class T, int kWidth, bool kUnpooled>
__global__ void __launch_bounds__(kThreads, 1)
    conv2d_3x3_filter_kernel(const Work<kWidth> work, const T* dy, const T* x, const std::uint8_t* indices,
                             float* partial) {
  using Sizes = Tiling<kWidth>;
  auto& shared = cuda::shared_memory<typename Sizes::Shared>();
  if (threadIdx.x == 0)
    for (int i = 0; i < Sizes::kStages; ++i) {
      shared.full[i].initialize((kUnpooled ? 2 : 1) * kWarpgroup);
      shared.free[i].initialize(kFilterRows * kWarps);
    }
  __syncthreads();
  const unsigned warpgroup = threadIdx.x / kWarpgroup;
  if (warpgroup == 0) {
    cuda::release_registers<kProducerRegisters>();
    produce<Sizes, kUnpooled>(work, dy, x, indices, shared);
  } else {
    cuda::acquire_registers<kConsumerRegisters>();
    consume<Sizes, T>(work, warpgroup - 1, shared, partial);
  }
}

constexpr int kPacksOfBlock = 32, kMaxParts = 8;  // threads of a block
constexpr int kSumPack = 4;
using SumPack = cuda::Pack<float, kSumPack>;

__device__ inline void add(SumPack& sum, const SumPack& other) {
#pragma unroll
  for (int i = 0; i < kSumPack; ++i) sum.values[i] += other.values[i];
}

/// Stores or adds to y the sums of the columns of `partial` [splits, 4 packs]. The threads of a column of the block add
/// the rows of four columns in turn, and the first one their sums.
__global__ void __launch_bounds__(kPacksOfBlock* kMaxParts)
    add_splits_kernel(const float* partial, int splits, std::int64_t packs, bool accumulates, float* y) {
  float* const sums =
      &cuda::shared_memory<float>() + threadIdx.x * kSumPack;  // [parts, packs of the block, 4]
  const std::int64_t pack = std::int64_t{blockIdx.x} * kPacksOfBlock + threadIdx.x;
  SumPack sum{};
  if (pack < packs) {
#pragma unroll 4
    for (int split = static_cast<int>(threadIdx.y); split < splits; split += static_cast<int>(blockDim.y))
      add(sum, cuda::load_pack<kSumPack>(partial + (split * packs + pack) * kSumPack));
  }
  cuda::store_pack(sums + threadIdx.y * kPacksOfBlock * kSumPack, sum);
  __syncthreads();
  if (threadIdx.y != 0 || pack >= packs) return;
  for (unsigned part = 1; part < blockDim.y; ++part)
    add(sum, cuda::load_pack<kSumPack>(sums + part * kPacksOfBlock * kSumPack));
  if (accumulates) add(sum, cuda::load_pack<kSumPack>(y + pack * kSumPack));
  cuda::store_pack(y + pack * kSumPack, sum);
}

}  // namespace

void conv2d_3x3_filter(CudaStream& stream, ConstView dy, ConstView x, GradView dfilter, ConstView indices) {
  if (dy.shape.numel() == 0) {
    if (dfilter.mode == GradMode::overwrite) fill(stream, 0, dfilter);
    return;
  }
  const Shape whole{x.shape[0], x.shape[1], x.shape[2], dy.shape[3]};  // of dy without pooling
  constexpr ElementTypes<float16, bfloat16> kTypes{"a tensor core"};
  dispatch(kTypes, dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto run = [&](auto width, auto unpooled) {
      const auto kernel = conv2d_3x3_filter_kernel<T, width.value, unpooled.value>;
      const Work<width.value> work(x.shape, whole, stream.multiprocessors());
      const Shape shape{work.splits, work.outputs * kTaps * std::int64_t{work.inputs}};
      const cuda::Scratch scratch(stream, View{nullptr, shape, DType::f32}.bytes());
      constexpr int kBytes = sizeof(typename Tiling<width.value>::Shared);
      stream.make_current();
      CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
      launch(stream, static_cast<unsigned>(work.groups() * work.splits), kThreads, kBytes, kernel, work,
             dy.as<T>(), x.as<T>(), indices.as<std::uint8_t>(), scratch.as<float>());
      const std::int64_t packs = shape[1] / kSumPack;
      const int parts = std::min(work.splits, kMaxParts);
      launch(stream, blocks_for(packs, kPacksOfBlock), dim3(kPacksOfBlock, parts),
             parts * kPacksOfBlock * sizeof(SumPack), add_splits_kernel, scratch.as<float>(), work.splits,
             packs, dfilter.mode == GradMode::accumulate, static_cast<float*>(dfilter.data));
    };
    if (indices.data != nullptr) return run(std::integral_constant<int, 0>{}, std::true_type{});
    if (whole[2] == 8) return run(std::integral_constant<int, 8>{}, std::false_type{});
    if (whole[2] == 16) return run(std::integral_constant<int, 16>{}, std::false_type{});
    if (whole[2] == 32) return run(std::integral_constant<int, 32>{}, std::false_type{});
    run(std::integral_constant<int, 0>{}, std::false_type{});
  });
}

}  // namespace convoy::kernels::hopper
