// Convolution with 3x3 filters, stride 1 and padding 1 by the tensor cores of Hopper, in f16 and bf16, and its
// gradients. Sums are f32; their order depends only on the shapes and the number of multiprocessors.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels::hopper {

/// How the filters [O, 3, 3, I] are read. `flipped`: filter o, channel i and tap t in the places of filter i,
/// channel o and tap 8 - t, which makes a convolution of dy the gradient of x.
enum class Filters : std::uint8_t { forward, flipped };

/// Returns whether the functions below compute a convolution of this type and sizes: f16 or bf16; 3x3, stride 1,
/// padding 1, dilation 1 and one group; images of at most 63 columns; channels in multiples of 8. Those of 8, 16 and 32
/// columns have code of their own, and multiples of 64 channels waste no multiplications.
bool supports_conv2d_3x3(DType dtype, const ConvSizes& sizes);

/// Enqueues y = x * filter, for arrays x [N, H, W, I] and y [N, H, W, O], where with `flipped` I is the first axis
/// of the filter and O the last one. Each element is rounded once. If sums.data is not null, also computes sums
/// [2, O] in f32: of the rounded elements of each channel, and of their squares. Requires supports_conv2d_3x3(), a
/// GPU of compute capability 9.0, and addresses that are multiples of 16.
///
/// With `indices` in u8, forward continues with max pooling in cells of 2 x 2 pixels: y and sums are those of
/// [N, H / 2, W / 2, O], and indices of the same shape become 2 row + column of the first greatest pixel of a cell, or
/// of a NaN. Rows and columns without a cell are dropped. Flipped, it begins with the gradient of that: x
/// [N, H / 2, W / 2, I] are the cells, and the other pixels of y's size are zeros.
void conv2d_3x3(CudaStream& stream, Filters order, ConstView x, ConstView filter, View y, View sums = {},
                View indices = {});

/// Enqueues the gradient of the filter [O, 3, 3, I] in f32, the correlation of x [N, H, W, I] with dy [N, H, W, O], or
/// with `indices` with the cells of dy. Has the same requirements.
void conv2d_3x3_filter(CudaStream& stream, ConstView dy, ConstView x, GradView dfilter,
                       ConstView indices = {});

/// Returns whether the functions below compute a convolution of this type and sizes: as above, with stride 2, and
/// images of even sizes and at most 126 columns.
bool supports_conv2d_strided(DType dtype, const ConvSizes& sizes);

/// A convolution of the same x with filters [O, 1, 1, I], stride 2 and no padding. filter.data is null: there is none.
struct Neighbor {
  ConstView filter;
  View y;
};

/// Enqueues y [N, H / 2, W / 2, O] = x [N, H, W, I] * filter [O, 3, 3, I] with stride 2, and that of `neighbor`. If
/// sums.data is not null, sums [2, 2, O] have for both the sums that conv2d_3x3() computes, of zeros without a neighbor.
void conv2d_strided(CudaStream& stream, ConstView x, ConstView filter, View y, View sums = {},
                    const Neighbor& neighbor = {});

/// Enqueues the gradient of x, of both convolutions if neighbor_dy.data is not null.
void conv2d_strided_data(CudaStream& stream, ConstView dy, ConstView filter, View dx,
                         ConstView neighbor_dy = {}, ConstView neighbor_filter = {});

}  // namespace convoy::kernels::hopper
