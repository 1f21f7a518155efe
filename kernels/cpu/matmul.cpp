// kernels/matmul.h on the CPU: OpenBLAS in f32 and f64; bf16 is computed on f32 copies.
#include "convoy/kernels/matmul.h"

#include <algorithm>

#include "convoy/kernels/cpu/primitives/blas.h"
#include "convoy/kernels/cpu/primitives/float_copies.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::kernels {
namespace {

/// Multiplications of a matrix up to which a batch is computed with one thread per matrix. From about 256^3
/// on, OpenBLAS uses all threads for one matrix well.
constexpr std::int64_t kMaxSmallGemm = std::int64_t{1} << 24;
/// Minimum number of multiplications per thread: a few microseconds.
constexpr std::int64_t kGemmGrain = std::int64_t{1} << 16;

/// Multiplies half-precision matrices in f32. The result is f32 and is stored in buffer 0 of `copies`, the
/// operands in buffers 1 and 2.
View float_gemm(CpuStream& stream, FloatCopies& copies, ConstView a, ConstView b, const Shape& c,
                MatmulOptions options) {
  const View result = copies.buffer(0, c);
  matmul(stream, copies.widen(1, a), copies.widen(2, b), GradView(result), options);
  return result;
}

}  // namespace

void matmul(CpuStream& stream, ConstView a, ConstView b, GradView c, MatmulOptions options) {
  if (is_half(c.dtype)) {
    FloatCopies copies(stream);
    return round_into(stream, float_gemm(stream, copies, a, b, c.shape, options), c);
  }
  const GemmSizes sizes(a.shape, b.shape, c.shape, options);
  const blasint m = blas::size(sizes.m);
  const blasint n = blas::size(sizes.n);
  const blasint k = blas::size(sizes.k);
  if (c.numel() == 0) return;
  dispatch(kCpuFullTypes, c.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (k == 0) {  // BLAS does not specify whether c is written in this case
      if (c.mode == GradMode::overwrite) std::fill_n(c.as<T>(), c.numel(), T{0});
      return;
    }
    set_library_threads(stream);
    const auto multiply = [&, lda = blas::size(a.shape[-1]), ldb = blas::size(b.shape[-1])](
                              std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        blas::gemm(options.transpose_a, options.transpose_b, m, n, k, T{1}, a.as<T>() + i * sizes.stride_a(),
                   lda, b.as<T>() + i * sizes.stride_b(), ldb, c.mode == GradMode::accumulate ? T{1} : T{0},
                   c.as<T>() + i * sizes.m * sizes.n, n);
    };
    const std::int64_t work = sizes.m * sizes.n * sizes.k;
    // Inside of a parallel loop, OpenBLAS uses one thread per call.
    if (sizes.batch > 1 && work <= kMaxSmallGemm)
      return parallel_for(stream, sizes.batch, std::max<std::int64_t>(1, kGemmGrain / work), multiply);
    multiply(0, sizes.batch);
  });
}

void linear_forward(CpuStream& stream, ConstView x, ConstView weight, ConstView bias, View y, bool relu) {
  if (is_half(y.dtype)) {  // rounds once, after the bias is added
    FloatCopies copies(stream);
    const View sums = float_gemm(stream, copies, x, weight, y.shape, {.transpose_b = true});
    if (bias.data != nullptr) add_bias(stream, sums, copies.widen(3, bias), sums, false);
    if (relu) relu_forward(stream, sums, sums);
    return cast(stream, sums, y);
  }
  matmul(stream, x, weight, GradView(y), {.transpose_b = true});
  if (bias.data != nullptr) {
    add_bias(stream, y, bias, y, relu);
  } else if (relu) {
    relu_forward(stream, y, y);
  }
}

}  // namespace convoy::kernels
