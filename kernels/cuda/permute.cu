// Layout permutes on the GPU (kernels/pool2d.h): a batch of matrix transposes through shared memory, so that
// global memory is read and written along rows. Each element is read once and written once.
// GradMode::accumulate also reads the destination.
#include "convoy/kernels/cuda/primitives/divisor.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/pool2d.h"

namespace convoy::kernels {
namespace {

constexpr int kTile = 32;     // side of a block's tile; its rows are whole memory sectors for each type
constexpr int kTileRows = 8;  // rows that the block moves at once; each thread has four loads in flight

template <class T>
struct Tile {
  T values[kTile]
          [kTile + 1];  // one column of padding, so that the elements of a column are in different banks
};

/// Computes to [image][column][row] = from [image][row][column], or +=. One block per tile. In the tile's
/// index the column varies fastest, then the row, then the image.
template <class T>
__global__ void __launch_bounds__(kTile* kTileRows)
    transpose_kernel(std::int64_t rows, std::int64_t columns, cuda::Divisor row_tiles,
                     cuda::Divisor column_tiles, GradMode mode, const T* from, T* to) {
  Tile<T>& tile = cuda::shared_memory<Tile<T>>();
  const std::int64_t block = blockIdx.x;
  const std::int64_t tile_row = column_tiles.quotient(block);
  const std::int64_t image = row_tiles.quotient(tile_row);
  const std::int64_t first_row = (tile_row - image * row_tiles.value()) * kTile;
  const std::int64_t first_column = (block - tile_row * column_tiles.value()) * kTile;
  from += image * rows * columns;
  to += image * rows * columns;
  const int lane = static_cast<int>(threadIdx.x);

  for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kTileRows)
    if (first_row + i < rows && first_column + lane < columns)
      tile.values[i][lane] = from[(first_row + i) * columns + first_column + lane];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kTileRows)
    if (first_column + i < columns && first_row + lane < rows) {
      T& out = to[(first_column + i) * rows + first_row + lane];
      const T value = tile.values[lane][i];
      out = mode == GradMode::accumulate ? cuda::narrow<T>(cuda::widen(out) + cuda::widen(value)) : value;
    }
}

void transpose_images(CudaStream& stream, ConstView x, std::int64_t rows, std::int64_t columns, GradView y) {
  if (!y.wanted() || y.numel() == 0) return;
  const std::int64_t row_tiles = blocks_for(rows, kTile);
  const std::int64_t column_tiles = blocks_for(columns, kTile);
  // All tiles are on the x axis of the grid, the only one that allows more than 65535 blocks.
  const auto blocks = static_cast<unsigned>(x.shape[0] * row_tiles * column_tiles);
  dispatch(cuda::kGpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks, dim3(kTile, kTileRows), sizeof(Tile<T>), transpose_kernel<T>, rows, columns,
           cuda::Divisor(row_tiles), cuda::Divisor(column_tiles), y.mode, x.as<T>(), y.as<T>());
  });
}

}  // namespace

void nhwc_to_nchw(CudaStream& stream, ConstView x, GradView y) {
  transpose_images(stream, x, x.shape[1] * x.shape[2], x.shape[3], y);
}

void nchw_to_nhwc(CudaStream& stream, ConstView x, GradView y) {
  transpose_images(stream, x, x.shape[1], x.shape[2] * x.shape[3], y);
}

}  // namespace convoy::kernels
