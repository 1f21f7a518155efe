// kernels/reduce_axes.h on the GPU. If the summed elements are contiguous, a team of threads sums those of one
// output. Otherwise adjacent outputs are adjacent in x, and a block sums 32 columns with eight threads each.
#include "convoy/kernels/reduce_axes.h"

#include "convoy/kernels/cuda/primitives/index_map.h"
#include "convoy/kernels/cuda/primitives/row_team.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/shared/reduction_axes.h"

namespace convoy::kernels {
namespace {

using cuda::IndexMap, cuda::compute_t, cuda::kGpuTypes, cuda::narrow, cuda::widen;

constexpr int kBlock = 256;
constexpr int kTile = 32;     // columns of a block: whole memory sectors for each type
constexpr int kTileRows = 8;  // threads per column

template <class T>
__device__ double value_at(const T* x, std::int64_t index) {
  return static_cast<double>(widen(x[index]));
}

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
  double sum = 0;
  for (std::int64_t r = Team::rank(); r < terms; r += Team::kSize) {
    reduced.offsets_of(r, at);
    sum += value_at(x, first[0] + at[0]);
  }
  sum = Team::reduce(sum, cuda::Sum{});
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
  double sum = 0;
  if (i < outputs) {
    std::int64_t first[1], at[1];
    kept.offsets_of(i, first);
    for (std::int64_t r = row; r < terms; r += kTileRows) {
      reduced.offsets_of(r, at);
      sum += value_at(x, first[0] + at[0]);
    }
  }
  sums.values[row][column] = sum;
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
    cuda::dispatch_team(terms, [&](auto team) {
      using Team = decltype(team);
      launch(stream, blocks_for(outputs, Team::kRowsOfBlock), Team::kBlock, Team::kSharedBytes,
             sum_rows_kernel<Team, T>, outputs, terms, kept, reduced, a, y.mode, x.as<T>(), y.as<T>());
    });
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
