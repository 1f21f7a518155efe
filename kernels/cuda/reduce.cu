// Reductions of whole tensors on the GPU (kernels/reduce.h): sum, norm, count, checksum, and the gradient
// of a sum. Each block reduces a piece of one tensor to a partial sum; one more block adds the partial sums.
// If there is one piece only, its block stores the result itself. Sums are f64, for every element type:
// squares of large floats do not overflow, and these kernels are memory-bound anyway.
#include "convoy/kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "convoy/kernels/base/checksum.h"
#include "convoy/kernels/cuda/primitives/block_sum.h"
#include "convoy/kernels/cuda/primitives/multi_tensor.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {
namespace {

using cuda::BlockPartials, cuda::compute_t, cuda::kGpuTypes, cuda::narrow, cuda::widen;

constexpr int kReduceBlock = 256;
constexpr int kReducePiece = 8192;  // elements per block: for floats, 8 loads of 16 bytes per thread
constexpr int kFinishBlock = 512;

// Functions of an element that are summed.

struct Value {
  __device__ double operator()(double x) const { return x; }
};

struct Square {
  __device__ double operator()(double x) const { return x * x; }
};

struct IsNonFinite {
  __device__ double operator()(double x) const { return x - x == 0 ? 0 : 1; }  // inf - inf is NaN
};

// Functions that store the sum.

struct WritePartial {
  double* partials;  // for finish_kernel
  __device__ void operator()(double sum) const { partials[blockIdx.x] = sum; }
};

struct WriteSum {
  void* y;
  DType dtype;
  bool add;

  template <class T>
  __device__ void put(double sum) const {
    T& to = *static_cast<T*>(y);
    const auto value = static_cast<compute_t<T>>(sum);
    to = narrow<T>(add ? widen(to) + value : value);
  }
  __device__ void operator()(double sum) const {
    switch (dtype) {
      case DType::f64: return put<double>(sum);
      case DType::f16: return put<float16>(sum);
      case DType::bf16: return put<bfloat16>(sum);
      default: return put<float>(sum);
    }
  }
};

struct WriteRoot {
  double* norm;
  __device__ void operator()(double sum) const { *norm = std::sqrt(sum); }
};

struct WriteCount {
  std::int32_t* count;
  __device__ void operator()(double sum) const {
    constexpr double kMax = std::numeric_limits<std::int32_t>::max();
    *count = static_cast<std::int32_t>(sum < kMax ? sum : kMax);
  }
};

template <class T>
struct ReduceSlot {
  const T* data;
  std::int64_t numel;
  std::uint32_t first_block;
};

/// Reduces one piece of a tensor per block.
template <class T, class F, class Finish>
__global__ void __launch_bounds__(kReduceBlock)
    reduce_kernel(const cuda::SlotTable<ReduceSlot<T>> table, F f, Finish finish) {
  const cuda::Piece piece = cuda::piece_of_block<kReducePiece>(table);
  const double sum =
      cuda::block_sum<kReduceBlock>(table.slots[piece.slot].data + piece.begin, piece.count, f,
                                    cuda::shared_memory<BlockPartials<double, kReduceBlock>>());
  if (threadIdx.x == 0) finish(sum);
}

template <class Finish>
__global__ void __launch_bounds__(kFinishBlock)
    finish_kernel(std::int64_t count, const double* partials, Finish finish) {
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += kFinishBlock) sum += partials[i];
  sum = cuda::block_reduce<kFinishBlock>(sum, cuda::Sum{},
                                         cuda::shared_memory<BlockPartials<double, kFinishBlock>>());
  if (threadIdx.x == 0) finish(sum);
}

/// Enqueues the reductions of all tensors of type T, in order, and returns the number of their blocks.
/// finish_after(n) stores the sums of the blocks that follow the first n of them.
template <class T, class F, class FinishAfter>
std::int64_t launch_reduce(CudaStream& stream, std::span<const ConstView> tensors, F f,
                           FinishAfter finish_after) {
  using Finish = decltype(finish_after(std::int64_t{0}));
  std::vector<ReduceSlot<T>> slots;
  for (const ConstView& tensor : tensors)
    if (tensor.dtype == dtype_of<T>)
      slots.push_back({.data = tensor.as<T>(), .numel = tensor.numel(), .first_block = 0});
  std::int64_t done = 0;
  cuda::for_each_table<kReducePiece>(slots, [&](const auto& table, unsigned blocks) {
    launch(stream, blocks, kReduceBlock, sizeof(BlockPartials<double, kReduceBlock>),
           reduce_kernel<T, F, Finish>, table, f, finish_after(done));
    done += blocks;
  });
  return done;
}

/// Enqueues finish(sum), where sum is the sum of f over all elements of all tensors.
template <class F, class Finish>
void reduce_all(CudaStream& stream, std::span<const ConstView> tensors, F f, Finish finish) {
  std::size_t blocks = 0;
  for (const ConstView& tensor : tensors) {
    dispatch(kGpuTypes, tensor.dtype, [](auto) {});  // throws UsageError for any other type
    blocks += blocks_for(tensor.numel(), kReducePiece);
  }
  const auto reduce = [&](auto finish_after) {
    std::int64_t done = 0;
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64})
      dispatch(kGpuTypes, dtype, [&](auto zero) {
        done += launch_reduce<decltype(zero)>(
            stream, tensors, f, [&](std::int64_t of_type) { return finish_after(done + of_type); });
      });
  };
  if (blocks == 1) return reduce([&](std::int64_t) { return finish; });
  const cuda::Scratch scratch(stream, blocks * sizeof(double));
  auto* const partials = scratch.as<double>();
  reduce([&](std::int64_t done) { return WritePartial{partials + done}; });
  launch(stream, 1, kFinishBlock, sizeof(BlockPartials<double, kFinishBlock>), finish_kernel<Finish>,
         static_cast<std::int64_t>(blocks), partials, finish);
}

/// a times a scalar of any floating-point type.
struct ScaledScalar {
  const void* x;
  DType dtype;
  double a;
  __device__ double operator()() const {
    switch (dtype) {
      case DType::f64: return a * *static_cast<const double*>(x);
      case DType::f16: return a * static_cast<double>(widen(*static_cast<const float16*>(x)));
      case DType::bf16: return a * static_cast<double>(widen(*static_cast<const bfloat16*>(x)));
      default: return a * static_cast<double>(*static_cast<const float*>(x));
    }
  }
};

/// Writes the scalar to y. One block per piece of y. Does not use `map`, so that each thread reads and
/// converts the scalar once.
template <class T>
__global__ void __launch_bounds__(kReduceBlock)
    broadcast_kernel(std::int64_t n, ScaledScalar multiple, GradMode mode, T* y) {
  constexpr int kWidth = cuda::kVectorWidth<T>;
  const std::int64_t begin = std::int64_t{blockIdx.x} * kReducePiece;
  const int count = static_cast<int>(n - begin < kReducePiece ? n - begin : kReducePiece);
  T* const to = y + begin;
  const double value = multiple();
  const auto after = [value, mode](T before) {
    return narrow<T>(static_cast<compute_t<T>>(mode == GradMode::accumulate ? widen(before) + value : value));
  };
  const auto thread = static_cast<int>(threadIdx.x);
  const int packs = cuda::is_aligned(to) ? count / kWidth : 0;
  for (int pack = thread; pack < packs; pack += kReduceBlock) {
    cuda::Pack<T, kWidth> out{};
    if (mode == GradMode::accumulate) out = cuda::load_pack<kWidth>(to + pack * kWidth);
    for (int i = 0; i < kWidth; ++i) out.values[i] = after(out.values[i]);
    cuda::store_pack(to + pack * kWidth, out);
  }
  for (int i = packs * kWidth + thread; i < count; i += kReduceBlock)
    to[i] = after(mode == GradMode::accumulate ? to[i] : T{});
}

using Word = unsigned long long;  // of 64 bits, as atomicAdd() expects it

constexpr int kChecksumBlock = 256;
constexpr int kMaxChecksumBlocks = 1024;
constexpr int kLanes = static_cast<int>(Checksum::kLanes);
static_assert(sizeof(Word) == sizeof(std::uint64_t) && kChecksumBlock % kLanes == 0);

/// Adds the words of a few lines. They are integers, so the order of the sum does not matter. Each thread has words of one lane only.
__global__ void __launch_bounds__(kChecksumBlock)
    checksum_kernel(const unsigned char* bytes, std::int64_t count, Word* value) {
  constexpr std::int64_t kWord = sizeof(Word);
  const std::int64_t words = (count + kWord - 1) / kWord, lines = (words + kLanes - 1) / kLanes;
  const auto thread = static_cast<std::int64_t>(blockIdx.x) * kChecksumBlock + threadIdx.x;
  Word factor = 1;
  for (int lane = 0; lane < thread % kLanes; ++lane) factor *= Checksum::kFactor;
  Word sum = 0;
  for (std::int64_t i = thread; i < words; i += static_cast<std::int64_t>(gridDim.x) * kChecksumBlock) {
    Word word = 0;
    if ((i + 1) * kWord <= count)
      word = reinterpret_cast<const Word*>(bytes)[i];
    else
      for (std::int64_t b = count; b-- > i * kWord;) word = word << 8 | bytes[b];
    sum += word * (1 + 2 * static_cast<Word>(lines - i / kLanes));
  }
  sum = cuda::block_reduce<kChecksumBlock>(sum * factor, cuda::Sum{},
                                           cuda::shared_memory<cuda::BlockPartials<Word, kChecksumBlock>>());
  if (threadIdx.x == 0) atomicAdd(value, sum);
}

}  // namespace

void sum(CudaStream& stream, ConstView x, GradView y) {
  if (!y.wanted()) return;
  dispatch(kGpuTypes, y.dtype, [](auto) {});  // throws UsageError for any other type
  reduce_all(stream, {&x, 1}, Value{}, WriteSum{y.data, y.dtype, y.mode == GradMode::accumulate});
}

void global_norm(CudaStream& stream, std::span<const ConstView> tensors, View norm) {
  reduce_all(stream, tensors, Square{}, WriteRoot{norm.as<double>()});
}

void count_non_finite(CudaStream& stream, std::span<const ConstView> tensors, View count) {
  reduce_all(stream, tensors, IsNonFinite{}, WriteCount{count.as<std::int32_t>()});
}

void broadcast_scalar(CudaStream& stream, ConstView x, double a, GradView y) {
  if (!y.wanted() || y.numel() == 0) return;
  dispatch(kGpuTypes, x.dtype, [](auto) {});
  dispatch(kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(y.numel(), kReducePiece), kReduceBlock, 0, broadcast_kernel<T>, y.numel(),
           ScaledScalar{.x = x.data, .dtype = x.dtype, .a = a}, y.mode, y.as<T>());
  });
}

void checksum(CudaStream& stream, ConstView x, View value) {
  fill(stream, 0, value);
  if (x.bytes() == 0) return;
  const auto count = static_cast<std::int64_t>(x.bytes());
  const unsigned blocks = std::min<unsigned>(kMaxChecksumBlocks, blocks_for(count, 8 * kChecksumBlock));
  launch(stream, blocks, kChecksumBlock, sizeof(cuda::BlockPartials<Word, kChecksumBlock>), checksum_kernel,
         x.as<unsigned char>(), count, value.as<Word>());
}

}  // namespace convoy::kernels
