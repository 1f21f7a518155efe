// Reductions of whole tensors on the GPU (kernels/reduce.h): sum, norm, count and checksum. Each block reduces
// a piece of one tensor to a partial sum; one more block adds the partial sums.
// If there is one piece only, its block stores the result itself. The sums of threads are compensated, and
// all further sums are f64: squares of large floats do not overflow.
#include "convoy/kernels/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "convoy/kernels/base/checksum.h"
#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "convoy/kernels/cuda/primitives/index_map.h"
#include "convoy/kernels/cuda/primitives/multi_tensor.h"
#include "convoy/kernels/cuda/primitives/row_team.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/shared/reduction_axes.h"

namespace convoy::kernels {
namespace {

using cuda::BlockPartials, cuda::CompensatedSum, cuda::IndexMap, cuda::compute_t, cuda::kGpuTypes,
    cuda::narrow, cuda::widen;

constexpr int kReduceBlock = 256;
constexpr int kReducePiece = 8192;  // elements per block: for floats, 8 loads of 16 bytes per thread
constexpr int kFinishBlock = 512;

// Functions of an element that are summed.

struct Value {
  template <class C>
  __device__ void operator()(C x, CompensatedSum<C>& sum) const {
    sum.add(x);
  }
};

struct Square {
  template <class C>
  __device__ void operator()(C x, CompensatedSum<C>& sum) const {
    sum.add_square(x);
  }
};

struct IsNonFinite {
  template <class C>
  __device__ void operator()(C x, CompensatedSum<C>& sum) const {
    sum.sum += x - x == 0 ? C{0} : C{1};  // inf - inf is NaN
  }
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
  double a;

  template <class T>
  __device__ void put(double sum) const {
    T& to = *static_cast<T*>(y);
    const auto value = static_cast<compute_t<T>>(a * sum);
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
    finish_kernel(int count, const double* partials, Finish finish) {
  const double sum = cuda::block_sum<kFinishBlock>(
      partials, count, Value{}, cuda::shared_memory<BlockPartials<double, kFinishBlock>>());
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
         static_cast<int>(blocks), partials, finish);
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

void sum(CudaStream& stream, ConstView x, GradView y, double a) {
  if (!y.wanted()) return;
  dispatch(kGpuTypes, y.dtype, [](auto) {});  // throws UsageError for any other type
  reduce_all(stream, {&x, 1}, Value{}, WriteSum{y.data, y.dtype, y.mode == GradMode::accumulate, a});
}

void global_norm(CudaStream& stream, std::span<const ConstView> tensors, View norm) {
  reduce_all(stream, tensors, Square{}, WriteRoot{norm.as<double>()});
}

void count_non_finite(CudaStream& stream, std::span<const ConstView> tensors, View count) {
  reduce_all(stream, tensors, IsNonFinite{}, WriteCount{count.as<std::int32_t>()});
}

void checksum(CudaStream& stream, ConstView x, View value) {
  fill(stream, 0, value);
  if (x.bytes() == 0) return;
  const auto count = static_cast<std::int64_t>(x.bytes());
  const unsigned blocks = std::min<unsigned>(kMaxChecksumBlocks, blocks_for(count, 8 * kChecksumBlock));
  launch(stream, blocks, kChecksumBlock, sizeof(cuda::BlockPartials<Word, kChecksumBlock>), checksum_kernel,
         x.as<unsigned char>(), count, value.as<Word>());
}

// reduce_axes of kernels/reduce.h on the GPU. If the summed elements are contiguous, a team of threads sums those of one
// output. Otherwise adjacent outputs are adjacent in x, and a block sums 32 columns with eight threads each.

namespace {

constexpr int kBlock = 256;
constexpr int kTile = 32;     // columns of a block: whole memory sectors for each type
constexpr int kTileRows = 8;  // threads per column

template <class T>
__device__ void store_sum(GradMode mode, T& y, double sum) {
  using C = compute_t<T>;
  y = narrow<T>(static_cast<C>(mode == GradMode::accumulate ? static_cast<double>(widen(y)) + sum : sum));
}

/// One team per output.
template <class Team, class T>
__global__ void __launch_bounds__(Team::kBlock)
    sum_rows_kernel(std::int64_t outputs, std::int64_t terms, IndexMap<1> kept, IndexMap<1> reduced, double a,
                    GradMode mode, const T* x, T* y) {
  const std::int64_t i = Team::row();
  if (i >= outputs) return;  // true for all threads of a team
  std::int64_t first[1], at[1];
  kept.offsets_of(i, first);
  CompensatedSum<compute_t<T>> terms_sum;
  for (std::int64_t r = Team::rank(); r < terms; r += Team::kSize) {
    reduced.offsets_of(r, at);
    terms_sum.add(widen(x[first[0] + at[0]]));
  }
  const double sum = Team::reduce(terms_sum.value(), cuda::Sum{});
  if (Team::rank() == 0) store_sum(mode, y[i], a * sum);
}

struct TileSums {
  double values[kTileRows][kTile];
};

/// One block per tile of 32 outputs.
template <class T>
__global__ void __launch_bounds__(kTile* kTileRows)
    sum_columns_kernel(std::int64_t outputs, std::int64_t terms, IndexMap<1> kept, IndexMap<1> reduced,
                       double a, GradMode mode, const T* x, T* y) {
  TileSums& sums = cuda::shared_memory<TileSums>();
  const int column = static_cast<int>(threadIdx.x), row = static_cast<int>(threadIdx.y);
  const std::int64_t i = std::int64_t{blockIdx.x} * kTile + column;
  CompensatedSum<compute_t<T>> terms_sum;
  if (i < outputs) {
    std::int64_t first[1], at[1];
    kept.offsets_of(i, first);
    for (std::int64_t r = row; r < terms; r += kTileRows) {
      reduced.offsets_of(r, at);
      terms_sum.add(widen(x[first[0] + at[0]]));
    }
  }
  double sum = sums.values[row][column] = terms_sum.value();
  __syncthreads();
  if (row != 0 || i >= outputs) return;
  for (int k = 1; k < kTileRows; ++k) sum += sums.values[k][column];
  store_sum(mode, y[i], a * sum);
}

/// One thread per output.
template <class T>
__global__ void __launch_bounds__(kBlock)
    max_kernel(std::int64_t outputs, std::int64_t n, cuda::Divisor inner, const T* x, T* y,
               std::int32_t* indices) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= outputs) return;
  const std::int64_t outer = inner.quotient(i);
  x += outer * n * inner.value() + (i - outer * inner.value());
  T largest = x[0];
  std::int32_t at = 0;
  for (std::int64_t k = 1; k < n; ++k) {
    const T next = x[k * inner.value()];
    // True if the next element is larger or NaN, unless a NaN was found before.
    if (widen(largest) == widen(largest) && !(widen(next) <= widen(largest))) {
      largest = next;
      at = static_cast<std::int32_t>(k);
    }
  }
  y[i] = largest;
  indices[i] = at;
}

/// One thread per element of dx.
template <class T>
__global__ void __launch_bounds__(kBlock)
    max_backward_kernel(std::int64_t elements, cuda::Divisor n, cuda::Divisor inner, GradMode mode,
                        const T* dy, const std::int32_t* indices, T* dx) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= elements) return;
  const std::int64_t row = inner.quotient(i), outer = n.quotient(row);
  const std::int64_t output = outer * inner.value() + (i - row * inner.value());
  const bool is_maximum = indices[output] == row - outer * n.value();
  const compute_t<T> gradient = is_maximum ? widen(dy[output]) : compute_t<T>{0};
  dx[i] = narrow<T>(mode == GradMode::accumulate ? widen(dx[i]) + gradient : gradient);
}

}  // namespace

void sum_axes(CudaStream& stream, ConstView x, double a, GradView y) {
  const std::int64_t outputs = y.numel();
  if (!y.wanted() || outputs == 0) return;
  if (x.numel() == 0) {
    if (y.mode == GradMode::overwrite) fill(stream, 0, y);
    return;
  }
  const ReductionAxes axes(x.shape, y.shape);
  const IndexMap<1> kept(axes.kept), reduced(axes.reduced);
  const std::int64_t terms = axes.reduced.numel();
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (axes.kept.inner_stride(0) == 1) {
      launch(stream, blocks_for(outputs, kTile), dim3(kTile, kTileRows), sizeof(TileSums),
             sum_columns_kernel<T>, outputs, terms, kept, reduced, a, y.mode, x.as<T>(), y.as<T>());
      return;
    }
    const auto kernel_of = [](auto team) { return sum_rows_kernel<decltype(team), T>; };
    cuda::launch_teams(stream, outputs, terms, kernel_of, outputs, terms, kept, reduced, a, y.mode, x.as<T>(),
                       y.as<T>());
  });
}

void max_axis(CudaStream& stream, ConstView x, View y, View indices) {
  const std::int64_t outputs = y.numel();
  if (outputs == 0) return;
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(outputs, kBlock), kBlock, 0, max_kernel<T>, outputs, x.shape[1],
           cuda::Divisor(x.shape[2]), x.as<T>(), y.as<T>(), indices.as<std::int32_t>());
  });
}

void max_axis_backward(CudaStream& stream, ConstView dy, ConstView indices, GradView dx) {
  const std::int64_t elements = dx.numel();
  if (!dx.wanted() || elements == 0) return;
  dispatch(kGpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(elements, kBlock), kBlock, 0, max_backward_kernel<T>, elements,
           cuda::Divisor(dx.shape[1]), cuda::Divisor(dx.shape[2]), dx.mode, dy.as<T>(),
           indices.as<std::int32_t>(), dx.as<T>());
  });
}

}  // namespace convoy::kernels
