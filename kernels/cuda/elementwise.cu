// kernels/elementwise.h on the GPU: `map` applies the functions of kernels/shared to the arrays.
#include "convoy/kernels/elementwise.h"

#include "convoy/kernels/cuda/primitives/map.h"
#include "convoy/kernels/cuda/primitives/math.h"
#include "convoy/kernels/shared/broadcast_functions.h"
#include "convoy/kernels/shared/elementwise_functions.h"

namespace convoy::kernels {

void add(CudaStream& stream, ConstView x, ConstView y, View z, double a, double b) {
  cuda::map(stream, x, y, z, WeightedSum{a, b});
}

void mul(CudaStream& stream, ConstView x, ConstView y, GradView z) { cuda::map(stream, x, y, z, Times{}); }

void scale(CudaStream& stream, ConstView x, double a, GradView y) { cuda::map(stream, x, y, Multiple{a}); }

void add_scalar(CudaStream& stream, ConstView x, double a, View y) { cuda::map(stream, x, y, AddScalar{a}); }

void unary_forward(CudaStream& stream, UnaryOp op, ConstView x, View y, double p) {
  dispatch_unary<cuda::GpuMath>(
      op, p, [&](auto function) { cuda::map(stream, x, y, UnaryForward<decltype(function)>{function}); });
}

void unary_backward(CudaStream& stream, UnaryOp op, ConstView dy, ConstView saved, GradView dx, double p) {
  dispatch_unary<cuda::GpuMath>(op, p, [&](auto function) {
    cuda::map(stream, dy, saved, dx, UnaryBackward<decltype(function)>{function});
  });
}

}  // namespace convoy::kernels
