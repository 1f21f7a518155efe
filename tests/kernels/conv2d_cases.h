// The convolutions on which kernels and devices are compared.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <ostream>

#include "convoy/kernels/conv2d.h"

namespace convoy::testing {

/// The dimensions of one convolution.
struct ConvCase {
  std::int64_t n, h, w, i, o, kh, kw;
  Size2d stride, padding;
  std::int64_t groups = 1;
  Size2d dilation = 1;

  std::int64_t oh() const {
    return (h + 2 * padding.height - dilation.height * (kh - 1) - 1) / stride.height + 1;
  }
  std::int64_t ow() const {
    return (w + 2 * padding.width - dilation.width * (kw - 1) - 1) / stride.width + 1;
  }
  Shape x() const { return {n, h, w, i}; }
  Shape filter() const { return {o, kh, kw, i / groups}; }
  Shape y() const { return {n, oh(), ow(), o}; }
  Conv2dOptions options() const { return {.stride = stride, .padding = padding, .dilation = dilation}; }
};

inline std::ostream& operator<<(std::ostream& out, const ConvCase& c) {
  return out << c.x().text() << " filters " << c.filter().text() << " stride " << c.stride.text()
             << " padding " << c.padding.text() << " groups " << c.groups << " dilation "
             << c.dilation.text();
}

// n, h, w, i, o, kh, kw, stride, padding, groups, dilation
inline const ConvCase kConvCases[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0},          // one number
    {2, 8, 8, 16, 16, 3, 3, 1, 1},        // the body of a ResNet
    {3, 7, 5, 3, 16, 3, 3, 1, 1},         // a stem, odd sizes
    {2, 8, 8, 16, 32, 3, 3, 2, 1},        // downsampling
    {2, 8, 8, 16, 32, 1, 1, 2, 0},        // its shortcut; no window covers the last row and column
    {1, 9, 9, 32, 16, 1, 1, 1, 0},        // 1x1
    {2, 11, 13, 3, 5, 5, 5, 1, 0},        // LeNet
    {2, 14, 14, 3, 17, 7, 7, 2, 3},       // an ImageNet stem
    {1, 3, 2, 5, 3, 5, 5, 1, 2},          // filters larger than the image without its padding
    {3, 7, 7, 17, 5, 7, 7, 1, 0},         // one output pixel
    {2, 10, 11, 5, 17, 3, 3, 3, 0},       // stride 3; the last columns are in no window
    {1, 8, 8, 4, 4, 3, 3, 3, 2},          // some windows contain only padding
    {2, 6, 6, 1, 16, 3, 3, 1, 1},         // grayscale images
    {2, 6, 6, 16, 1, 3, 3, 2, 0},         // one output channel
    {3, 6, 7, 3, 24, 2, 2, 1, 0},         // a whitening layer
    {2, 7, 5, 2, 8, 2, 4, 2, 1},          // windows of 16 values, not square, with padding
    {2, 4, 4, 3, 3, 1, 1, 1, 1},          // 1x1 with padding: a border that is only bias
    {1, 5, 9, 5, 7, 1, 5, 1, 2},          // not square
    {1, 5, 9, 5, 8, 1, 5, 1, 2},          // the same, with output channels that fill whole vectors
    {1, 4, 4, 32, 24, 3, 3, 1, 1},        // more channels than pixels
    {2, 8, 8, 32, 32, 3, 3, 1, 1, 32},    // depthwise
    {2, 9, 7, 6, 12, 3, 3, 2, 1, 6},      // two filters per channel
    {2, 8, 8, 32, 64, 3, 3, 1, 1, 4},     // groups that fill vectors
    {1, 7, 9, 6, 9, 3, 5, 2, 2, 3},       // groups of odd sizes
    {2, 5, 5, 12, 8, 1, 1, 1, 0, 4},      // grouped 1x1
    {2, 9, 8, 16, 16, 3, 3, 1, 2, 1, 2},  // dilated channels that fill vectors
    {2, 9, 8, 3, 5, 3, 2, {2, 1}, {1, 3}, 1, {2, 3}},  // everything differs between the axes
    {1, 6, 7, 3, 4, 5, 5, 1, {4, 8}, 1, {2, 4}},       // windows larger than the image
    {2, 9, 8, 6, 9, 3, 3, {1, 2}, {0, 2}, 3, {1, 2}},  // groups with dilated columns
    {2, 8, 8, 32, 16, 3, 3, {1, 2}, 1},                // 3x3 with two strides
    {2, 8, 8, 16, 32, 3, 3, 1, {1, 0}},                // and with two paddings
    {2, 8, 8, 3, 8, 2, 2, 1, 1, 1, 2},                 // windows of 12 values with gaps
    {1, 5, 5, 4, 4, 2, 2, 2, 4, 1, 3},                 // windows that step over the image
};

/// A scope guard that sets CONVOY_WINOGRAD. A CPU stream whose first convolution runs in this scope does not
/// use the Winograd algorithm, which has larger rounding errors.
struct DirectConvolutions {
  explicit DirectConvolutions(const char* value = "off") { setenv("CONVOY_WINOGRAD", value, 1); }
  ~DirectConvolutions() { unsetenv("CONVOY_WINOGRAD"); }
  DirectConvolutions(const DirectConvolutions&) = delete;
  DirectConvolutions& operator=(const DirectConvolutions&) = delete;
};

}  // namespace convoy::testing
