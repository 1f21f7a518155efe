// Reference GEMM on the GPU: the textbook algorithm with tiles in shared memory. Each block computes a square
// tile of c and iterates over K. Each iteration loads a slab of both operands into shared memory, from which
// the threads multiply. Each element of a is read N / kTile times from global memory instead of N times, and
// each element of b M / kTile times instead of M times.
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/matmul.h"

namespace convoy::kernels {
namespace {

using cuda::compute_t;
using cuda::narrow;
using cuda::widen;

constexpr int kTile = 64;                  // rows and columns of c per block
constexpr int kDepth = 16;                 // extent of a slab along K
constexpr int kSide = 16;                  // threads per side of the block
constexpr int kPerThread = kTile / kSide;  // rows and columns of c per thread, with a stride of kSide
constexpr int kThreads = kSide * kSide;

/// An operand of the GEMM. Element (line, k) has the index line line_stride + k k_stride. The lines of op(a)
/// are its rows, the lines of op(b) its columns.
template <class T>
struct Operand {
  const T* data;
  std::int64_t lines;
  std::int64_t line_stride, k_stride;
  std::int64_t matrix_stride;  // to the next matrix of the batch; 0 if all use the same one
};

/// The shared memory of a block. Two columns of padding avoid bank conflicts in f32 when a warp stores along
/// k.
template <class C>
struct Slabs {
  C a[kDepth][kTile + 2];
  C b[kDepth][kTile + 2];
};

/// Sets slab[k][line] to the operand's element (first_line + line, first_k + k), or to zero outside the
/// operand. Adjacent threads read adjacent memory.
template <class T>
__device__ void load_slab(const Operand<T>& from, std::int64_t first_line, std::int64_t first_k,
                          std::int64_t depth, compute_t<T> (&slab)[kDepth][kTile + 2]) {
  const int thread = static_cast<int>(threadIdx.y * kSide + threadIdx.x);
  const bool along_k = from.k_stride == 1;
  for (int e = thread; e < kDepth * kTile; e += kThreads) {
    const int k = along_k ? e % kDepth : e / kTile;
    const int line = along_k ? e / kDepth : e % kTile;
    const bool inside = first_line + line < from.lines && first_k + k < depth;
    slab[k][line] =
        inside ? widen(from.data[(first_line + line) * from.line_stride + (first_k + k) * from.k_stride])
               : compute_t<T>{0};
  }
}

/// Computes c [batch, rows, columns] = a b, or +=. One block per tile; the column of tiles varies fastest,
/// the matrix of the batch slowest.
template <class T>
__global__ void __launch_bounds__(kThreads)
    matmul_kernel(Operand<T> a, Operand<T> b, std::int64_t depth, unsigned tiles_per_row,
                  unsigned tiles_per_matrix, GradMode mode, T* c) {
  auto& slabs = cuda::shared_memory<Slabs<compute_t<T>>>();
  const std::int64_t matrix = blockIdx.x / tiles_per_matrix;
  const unsigned tile = blockIdx.x % tiles_per_matrix;
  const std::int64_t first_row = std::int64_t{tile / tiles_per_row} * kTile;
  const std::int64_t first_column = std::int64_t{tile % tiles_per_row} * kTile;
  a.data += matrix * a.matrix_stride;
  b.data += matrix * b.matrix_stride;
  c += matrix * a.lines * b.lines;

  compute_t<T> sum[kPerThread][kPerThread] = {};
  for (std::int64_t first_k = 0; first_k < depth; first_k += kDepth) {
    load_slab(a, first_row, first_k, depth, slabs.a);
    load_slab(b, first_column, first_k, depth, slabs.b);
    __syncthreads();
    for (int k = 0; k < kDepth; ++k) {
      compute_t<T> left[kPerThread], right[kPerThread];
      for (int i = 0; i < kPerThread; ++i) left[i] = slabs.a[k][i * kSide + threadIdx.y];
      for (int j = 0; j < kPerThread; ++j) right[j] = slabs.b[k][j * kSide + threadIdx.x];
      for (int i = 0; i < kPerThread; ++i)
        for (int j = 0; j < kPerThread; ++j) sum[i][j] += left[i] * right[j];
    }
    __syncthreads();
  }

  for (int i = 0; i < kPerThread; ++i)
    for (int j = 0; j < kPerThread; ++j) {
      const std::int64_t row = first_row + i * kSide + threadIdx.y;
      const std::int64_t column = first_column + j * kSide + threadIdx.x;
      if (row >= a.lines || column >= b.lines) continue;
      T& out = c[row * b.lines + column];
      out = narrow<T>(mode == GradMode::accumulate ? widen(out) + sum[i][j] : sum[i][j]);
    }
}

}  // namespace

void matmul_reference(CudaStream& stream, ConstView a, ConstView b, GradView c, MatmulOptions options) {
  if (!c.wanted() || c.numel() == 0) return;
  const GemmSizes sizes(a.shape, b.shape, c.shape, options);
  const std::int64_t m = sizes.m, n = sizes.n, k = sizes.k;
  const unsigned tiles_per_row = blocks_for(n, kTile);
  const unsigned tiles_per_matrix = blocks_for(m, kTile) * tiles_per_row;
  dispatch(cuda::kGpuTypes, c.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Operand<T> left{.data = a.as<T>(),
                          .lines = m,
                          .line_stride = options.transpose_a ? 1 : k,
                          .k_stride = options.transpose_a ? m : 1,
                          .matrix_stride = sizes.stride_a()};
    const Operand<T> right{.data = b.as<T>(),
                           .lines = n,
                           .line_stride = options.transpose_b ? k : 1,
                           .k_stride = options.transpose_b ? 1 : n,
                           .matrix_stride = sizes.stride_b()};
    launch(stream, static_cast<unsigned>(sizes.batch) * tiles_per_matrix, dim3(kSide, kSide),
           sizeof(Slabs<compute_t<T>>), matmul_kernel<T>, left, right, k, tiles_per_row, tiles_per_matrix,
           c.mode, c.as<T>());
  });
}

}  // namespace convoy::kernels
