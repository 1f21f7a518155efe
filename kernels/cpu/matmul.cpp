// kernels/matmul.h on the CPU: oneDNN or OpenBLAS (primitives/blas.h); bf16 is computed on f32 copies.
#include "convoy/kernels/matmul.h"

#include <algorithm>

#include "convoy/kernels/cpu/primitives/blas.h"
#include "convoy/kernels/cpu/primitives/float_copies.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::kernels {
namespace {

/// The blocks of a result matrix that are computed by one call each. Their number depends on the sizes only,
/// so results are the same for any number of threads.
struct Blocks {
  std::int64_t rows = 1, columns = 1;  // numbers of blocks

  explicit Blocks(const GemmSizes& sizes) {
    constexpr std::int64_t kMinSide = 16, kMaxBlocks = 64;
    // The larger side is split, since each call packs the rows and columns that it multiplies.
    while (count() < kMaxBlocks && sizes.m * sizes.n * sizes.k >= 2 * kMinWork * count()) {
      const std::int64_t m = sizes.m / rows, n = sizes.n / columns;
      if (std::max(m, n) < 2 * kMinSide) break;
      (m >= n ? rows : columns) *= 2;
    }
  }
  std::int64_t count() const { return rows * columns; }

  static constexpr std::int64_t kMinWork = std::int64_t{1} << 20;  // multiplications of a call: about 20 us
};

/// Multiplies half-precision matrices in f32. The result is f32 and is stored in buffer 0 of `copies`, the
/// operands in buffers 1 and 2.
View float_gemm(CpuStream& stream, FloatCopies& copies, ConstView a, ConstView b, const Shape& c,
                MatmulOptions options) {
  const View result = copies.buffer(c);
  matmul(stream, copies.widen(a), copies.widen(b), GradView(result), options);
  return result;
}

}  // namespace

void matmul(CpuStream& stream, ConstView a, ConstView b, GradView c, MatmulOptions options) {
  if (is_half(c.dtype)) {
    FloatCopies copies(stream);
    return round_into(stream, float_gemm(stream, copies, a, b, c.shape, options), c);
  }
  const GemmSizes sizes(a.shape, b.shape, c.shape, options);
  for (const std::int64_t size : {sizes.m, sizes.n, sizes.k}) blas::size(size);  // throws if one is too large
  if (c.numel() == 0) return;
  dispatch(kCpuFullTypes, c.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (sizes.k == 0) {  // BLAS does not specify whether c is written in this case
      if (c.mode == GradMode::overwrite) std::fill_n(c.as<T>(), c.numel(), T{0});
      return;
    }
    const Blocks blocks(sizes);
    const blasint lda = blas::size(a.shape[-1]), ldb = blas::size(b.shape[-1]), ldc = blas::size(sizes.n);
    const auto multiply = [&](std::int64_t item) {
      const std::int64_t matrix = item / blocks.count(), block = item % blocks.count();
      const std::int64_t i = block / blocks.columns, j = block % blocks.columns;
      const std::int64_t row = sizes.m * i / blocks.rows, column = sizes.n * j / blocks.columns;
      const std::int64_t rows = sizes.m * (i + 1) / blocks.rows - row;
      const std::int64_t columns = sizes.n * (j + 1) / blocks.columns - column;
      blas::gemm(stream, options.transpose_a, options.transpose_b, blas::size(rows), blas::size(columns),
                 blas::size(sizes.k), T{1},
                 a.as<T>() + matrix * sizes.stride_a() + row * (options.transpose_a ? 1 : lda), lda,
                 b.as<T>() + matrix * sizes.stride_b() + column * (options.transpose_b ? ldb : 1), ldb,
                 c.mode == GradMode::accumulate ? T{1} : T{0},
                 c.as<T>() + (matrix * sizes.m + row) * sizes.n + column, ldc);
    };
    const std::int64_t work = sizes.m * sizes.n * sizes.k / blocks.count();
    const std::int64_t grain = Blocks::kMinWork / std::max<std::int64_t>(work, 1);
    parallel_for(stream, sizes.batch * blocks.count(), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) multiply(item);
    });
  });
}

void matmul_add(CpuStream& stream, double alpha, ConstView a, ConstView b, double beta, ConstView c, View d,
                MatmulOptions options) {
  matmul(stream, a, b, GradView(d), options);
  add(stream, c, d, d, beta, alpha);
}

void linear_forward(CpuStream& stream, ConstView x, ConstView weight, ConstView bias, View y, bool relu) {
  if (is_half(y.dtype)) {  // rounds once, after the bias is added
    FloatCopies copies(stream);
    const View sums = float_gemm(stream, copies, x, weight, y.shape, {.transpose_b = true});
    if (bias.data != nullptr) add_bias(stream, sums, copies.widen(bias), sums, false);
    if (relu) unary_forward(stream, UnaryOp::relu, sums, sums);
    return cast(stream, sums, y);
  }
  matmul(stream, x, weight, GradView(y), {.transpose_b = true});
  if (bias.data != nullptr) {
    add_bias(stream, y, bias, y, relu);
  } else if (relu) {
    unary_forward(stream, UnaryOp::relu, y, y);
  }
}

}  // namespace convoy::kernels
