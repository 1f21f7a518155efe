// The row-wise functions of kernels/reduce.h on the GPU: sum_rows, relu_bias_backward and add_bias.
#include <algorithm>
#include <functional>
#include <limits>

#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/shared/elementwise_functions.h"

namespace convoy::kernels {
namespace {

using cuda::compute_t, cuda::kGpuTypes, cuda::narrow, cuda::Pack, cuda::widen;

constexpr int kTileBlock = 256;                // threads
constexpr int kSegmentBytes = 128;             // bytes of a row per block: a whole cache line
constexpr int kMaxAcross = 32;                 // maximum threads along a row
constexpr std::int64_t kMaxRowBlocks = 65535;  // maximum gridDim.y
constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// An array viewed as a matrix [rows, columns], where columns is the size of the last axis.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  explicit Matrix(const Shape& shape) : columns(shape[-1]) {
    if (columns > 0) rows = shape.numel() / columns;
  }
};

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The assignment of a matrix to blocks. A block has kTileBlock / across rows of threads; each row of threads
/// has `across` threads, with one pack per thread. The rows of threads take the block's matrix rows in turn,
/// and each thread keeps its columns. The assignment depends on the shape and the element type.
struct RowTiles {
  unsigned across = 1;  // a power of two
  unsigned column_tiles = 1;
  unsigned row_blocks = 1;
  std::int64_t rows_of_block = 0;

  dim3 grid() const { return {column_tiles, row_blocks}; }
  dim3 block() const { return {across, kTileBlock / across}; }
};

/// Returns tiles with up to `max_blocks` blocks, such that each thread has at least `thread_rows` rows if
/// possible.
RowTiles tile_matrix(Matrix matrix, int pack_elements, std::size_t pack_bytes, std::int64_t thread_rows,
                     std::int64_t max_blocks) {
  RowTiles tiles;
  const std::int64_t packs = matrix.columns / pack_elements;
  const auto max_across = std::min<std::int64_t>(kMaxAcross, kSegmentBytes / pack_bytes);
  while (tiles.across < std::min(packs, max_across)) tiles.across *= 2;
  tiles.column_tiles = blocks_for(packs, static_cast<int>(tiles.across));
  const std::int64_t block_rows = thread_rows * kTileBlock / tiles.across;
  const std::int64_t max_row_blocks =
      std::clamp<std::int64_t>(max_blocks / tiles.column_tiles, 1, kMaxRowBlocks);
  const std::int64_t row_blocks =
      std::clamp<std::int64_t>(ceil_divide(matrix.rows, block_rows), 1, max_row_blocks);
  tiles.rows_of_block = std::max<std::int64_t>(1, ceil_divide(matrix.rows, row_blocks));
  tiles.row_blocks =
      static_cast<unsigned>(std::max<std::int64_t>(1, ceil_divide(matrix.rows, tiles.rows_of_block)));
  return tiles;
}

// Sums over rows.

constexpr std::int64_t kSumThreadRows =
    16;                                    // with fewer, the partial sums would not be small compared with x
constexpr std::int64_t kSumBlocks = 1024;  // enough for the largest GPUs

template <int kWidth>
struct ColumnSums {
  double values[kWidth][kTileBlock];  // this index order gives adjacent threads adjacent banks
};

/// The rows to sum: those of an array.
template <class X>
struct Rows {
  using Element = X;
  static constexpr std::int64_t kThreadRows = kSumThreadRows;
  template <int kWidth>
  static constexpr int kRows = 1;  // rows that a thread loads before it stores any
  const X* x;

  bool is_aligned() const { return cuda::is_aligned(x); }
  template <int kWidth>
  __device__ Pack<X, kWidth> load(std::int64_t i, bool is_aligned) const {
    return cuda::load_pack<kWidth>(x + i, is_aligned);
  }
  template <int kWidth>
  __device__ Pack<X, kWidth> terms(const Pack<X, kWidth>& loaded, std::int64_t, bool) const {
    return loaded;
  }
};

/// The rows to sum: those of g, which is 0 where y <= 0 and else dy, and is stored as well.
template <class X>
struct ReluRows {
  using Element = X;
  static constexpr std::int64_t kThreadRows =
      kSumThreadRows / 4;  // partial sums are small next to three arrays
  template <int kWidth>
  static constexpr int kRows = kWidth > 1 ? 2 : 4;
  const X *dy, *y;
  X* g;

  template <int kWidth>
  struct Loaded {
    Pack<X, kWidth> dy, y;
  };

  bool is_aligned() const { return cuda::is_aligned(dy) && cuda::is_aligned(y) && cuda::is_aligned(g); }
  template <int kWidth>
  __device__ Loaded<kWidth> load(std::int64_t i, bool is_aligned) const {
    return {cuda::load_pack<kWidth>(dy + i, is_aligned), cuda::load_pack<kWidth>(y + i, is_aligned)};
  }
  template <int kWidth>
  __device__ Pack<X, kWidth> terms(const Loaded<kWidth>& loaded, std::int64_t i, bool is_aligned) const {
    Pack<X, kWidth> pack = loaded.dy;
    for (int k = 0; k < kWidth; ++k)
      if (widen(loaded.y.values[k]) <= 0) pack.values[k] = narrow<X>(0);
    cuda::store_pack(g + i, pack, is_aligned);
    return pack;
  }
};

/// Computes y [row blocks, columns], the sums over the rows of each row block.
template <int kWidth, class X, class Y>
__global__ void __launch_bounds__(kTileBlock)
    sum_rows_kernel(std::int64_t rows, std::int64_t columns, std::int64_t rows_of_block, bool is_aligned,
                    const X x, Y* y, GradMode mode) {
  const std::int64_t column = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWidth;
  const std::int64_t begin = blockIdx.y * rows_of_block;
  const std::int64_t end = begin + rows_of_block < rows ? begin + rows_of_block : rows;
  const std::int64_t stride = blockDim.y * columns;  // from a thread's row to its next one
  constexpr int kRows = X::template kRows<kWidth>;
  cuda::CompensatedSum<compute_t<typename X::Element>> sums[kWidth];
  if (column < columns) {
#pragma unroll kRows> 1 ? 1 : 3
    for (std::int64_t first = begin + threadIdx.y; first < end; first += kRows * blockDim.y) {
      const std::int64_t i = first * columns + column;
      decltype(x.template load<kWidth>(0, false)) loaded[kRows];
#pragma unroll
      for (int k = 0; k < kRows; ++k)
        if (first + k * blockDim.y < end) loaded[k] = x.template load<kWidth>(i + k * stride, is_aligned);
#pragma unroll
      for (int k = 0; k < kRows; ++k) {
        if (first + k * blockDim.y >= end) continue;
        const auto terms = x.template terms<kWidth>(loaded[k], i + k * stride, is_aligned);
        for (int c = 0; c < kWidth; ++c) sums[c].add(widen(terms.values[c]));
      }
    }
  }
  auto& shared = cuda::shared_memory<ColumnSums<kWidth>>();
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (int i = 0; i < kWidth; ++i) shared.values[i][thread] = sums[i].value();
  for (unsigned half = kTileBlock / 2; half >= blockDim.x;
       half /= 2) {  // combines the rows of threads in a binary tree
    __syncthreads();
    if (thread < half)
      for (int i = 0; i < kWidth; ++i) shared.values[i][thread] += shared.values[i][thread + half];
  }
  if (threadIdx.y != 0 || column >= columns) return;
  Y* const to = y + blockIdx.y * columns + column;
  for (int i = 0; i < kWidth; ++i) {
    const auto value = static_cast<compute_t<Y>>(shared.values[i][thread]);
    to[i] = narrow<Y>(mode == GradMode::accumulate ? widen(to[i]) + value : value);
  }
}

template <int kWidth, class X, class Y>
void launch_sum_rows(CudaStream& stream, Matrix matrix, const RowTiles& tiles, const X& x, Y* y,
                     GradMode mode) {
  launch(stream, tiles.grid(), tiles.block(), sizeof(ColumnSums<kWidth>), sum_rows_kernel<kWidth, X, Y>,
         matrix.rows, matrix.columns, tiles.rows_of_block, x.is_aligned(), x, y, mode);
}

/// Sums the rows of type T in one launch if there is one row block and y has this type. Otherwise computes
/// partial sums of each row block, then sums these.
template <class T, int kWidth, class X>
void sum_rows_of(CudaStream& stream, Matrix matrix, const X& x, const GradView& y) {
  RowTiles tiles = tile_matrix(matrix, kWidth, sizeof(Pack<T, kWidth>), kSumThreadRows, kSumBlocks);
  if (tiles.row_blocks > 1)
    tiles = tile_matrix(matrix, kWidth, sizeof(Pack<T, kWidth>), X::kThreadRows, kSumBlocks);
  if (tiles.row_blocks == 1 && y.dtype == dtype_of<T>)
    return launch_sum_rows<kWidth>(stream, matrix, tiles, x, y.as<T>(), y.mode);

  Matrix sums = matrix;
  sums.rows = tiles.row_blocks;
  const cuda::Scratch scratch(stream, static_cast<std::size_t>(sums.rows * sums.columns) * sizeof(double));
  auto* const partials = scratch.as<double>();
  launch_sum_rows<kWidth>(stream, matrix, tiles, x, partials, GradMode::overwrite);
  dispatch(kGpuTypes, y.dtype, [&](auto zero) {
    using Y = decltype(zero);
    const RowTiles all_rows = tile_matrix(sums, 1, sizeof(double), 1, 1);
    launch_sum_rows<1>(stream, sums, all_rows, Rows<double>{partials}, y.as<Y>(), y.mode);
  });
}

template <class T, class X>
void sum_rows_of(CudaStream& stream, Matrix matrix, const X& x, const GradView& y) {
  constexpr int kWidth = cuda::kVectorWidth<T>;
  if (matrix.columns % kWidth == 0) {
    sum_rows_of<T, kWidth>(stream, matrix, x, y);
  } else {
    sum_rows_of<T, 1>(stream, matrix, x, y);
  }
}

// Adds a bias to each row.

constexpr int kBiasRows = 4;  // rows per thread: loads in flight

template <int kWidth, class Activation, class T>
__global__ void __launch_bounds__(kTileBlock)
    add_bias_kernel(std::int64_t rows, std::int64_t columns, std::int64_t rows_of_block, const T* x,
                    const T* bias, T* y) {
  const std::int64_t column = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWidth;
  if (column >= columns) return;
  const Pack<T, kWidth> b = cuda::load_pack<kWidth>(bias + column);
  const std::int64_t begin = blockIdx.y * rows_of_block;
  const std::int64_t end = begin + rows_of_block < rows ? begin + rows_of_block : rows;
  for (std::int64_t first = begin + threadIdx.y; first < end; first += kBiasRows * blockDim.y) {
    Pack<T, kWidth> packs[kBiasRows];
#pragma unroll
    for (int k = 0; k < kBiasRows; ++k) {
      const std::int64_t row = first + k * blockDim.y;
      if (row < end) packs[k] = cuda::load_pack<kWidth>(x + row * columns + column);
    }
#pragma unroll
    for (int k = 0; k < kBiasRows; ++k) {
      const std::int64_t row = first + k * blockDim.y;
      if (row >= end) continue;
      for (int i = 0; i < kWidth; ++i)
        packs[k].values[i] = narrow<T>(Activation{}(widen(packs[k].values[i]) + widen(b.values[i])));
      cuda::store_pack(y + row * columns + column, packs[k]);
    }
  }
}

template <int kWidth, class Activation, class T>
void launch_add_bias(CudaStream& stream, Matrix matrix, const T* x, const T* bias, T* y) {
  const RowTiles tiles = tile_matrix(matrix, kWidth, sizeof(Pack<T, kWidth>), kBiasRows, kUnlimited);
  launch(stream, tiles.grid(), tiles.block(), 0, add_bias_kernel<kWidth, Activation, T>, matrix.rows,
         matrix.columns, tiles.rows_of_block, x, bias, y);
}

}  // namespace

void sum_rows(CudaStream& stream, ConstView x, GradView y) {
  const Matrix matrix(x.shape);
  if (!y.wanted() || matrix.columns == 0) return;
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    sum_rows_of<T>(stream, matrix, Rows<T>{x.as<T>()}, y);
  });
}

void relu_bias_backward(CudaStream& stream, ConstView dy, ConstView y, View g, GradView db) {
  const Matrix matrix(dy.shape);
  if (!db.wanted()) return unary_backward(stream, UnaryOp::relu, dy, y, GradView(g));
  if (matrix.columns == 0) return;
  dispatch(kGpuTypes, dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    sum_rows_of<T>(stream, matrix, ReluRows<T>{.dy = dy.as<T>(), .y = y.as<T>(), .g = g.as<T>()}, db);
  });
}

void add_bias(CudaStream& stream, ConstView x, ConstView bias, View y, bool relu) {
  const Matrix matrix(x.shape);
  if (matrix.rows == 0) return;
  dispatch(kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int kWidth = cuda::kVectorWidth<T>;
    const bool in_packs = matrix.columns % kWidth == 0 && cuda::is_aligned(x.data) &&
                          cuda::is_aligned(bias.data) && cuda::is_aligned(y.data);
    const auto add = [&](auto activation) {
      using Activation = decltype(activation);
      if (in_packs) {
        launch_add_bias<kWidth, Activation>(stream, matrix, x.as<T>(), bias.as<T>(), y.as<T>());
      } else {
        launch_add_bias<1, Activation>(stream, matrix, x.as<T>(), bias.as<T>(), y.as<T>());
      }
    };
    if (relu) return add(UnaryForward<Relu>{});
    add(std::identity{});
  });
}

}  // namespace convoy::kernels
