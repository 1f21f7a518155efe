// The dimensions of a convolution, derived from the shapes of its arguments.
#pragma once

#include <compare>
#include <cstdint>

#include "convoy/kernels/conv2d.h"

namespace convoy::kernels {

/// The sizes of a batch of NHWC images.
struct Images {
  std::int64_t n, h, w, channels;
  /// Return the numbers of elements of a row and of an image.
  std::int64_t row() const { return w * channels; }
  std::int64_t image() const { return h * w * channels; }
};

/// The dimensions of a convolution of x [n, h, w, i] with filter [o, kh, kw, i / groups] to y [n, oh, ow, o].
struct ConvSizes {
  std::int64_t n, h, w, i;
  std::int64_t o, kh, kw;
  std::int64_t oh, ow;
  Size2d stride, padding, dilation;
  std::int64_t groups;

  ConvSizes(const Shape& x, const Shape& filter, const Shape& y, Conv2dOptions options)
      : n(x[0]),
        h(x[1]),
        w(x[2]),
        i(x[3]),
        o(filter[0]),
        kh(filter[1]),
        kw(filter[2]),
        oh(y[1]),
        ow(y[2]),
        stride(options.stride),
        padding(options.padding),
        dilation(options.dilation),
        groups(filter[3] > 0 ? x[3] / filter[3] : 1) {}

  /// Return the sizes of x and of y.
  Images inputs() const { return {n, h, w, i}; }
  Images outputs() const { return {n, oh, ow, o}; }
  /// Returns whether rows and columns have one stride and one padding, and no dilation.
  bool is_uniform() const {
    return stride.height == stride.width && padding.height == padding.width && dilation == 1;
  }
  /// Return the numbers of input and of output channels of a group.
  std::int64_t group_inputs() const { return i / groups; }
  std::int64_t group_outputs() const { return o / groups; }

  friend auto operator<=>(const ConvSizes&, const ConvSizes&) = default;
};

}  // namespace convoy::kernels
