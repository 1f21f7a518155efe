// The windows of pooling along one axis of images.
#pragma once

#include <cstdint>

#include "convoy/kernels/pool2d.h"

namespace convoy::kernels {

/// One axis of the windows of pooling, in the general form: window o begins at pixel o step / parts - padding and ends
/// in front of pixel (o step + reach) / parts - padding, rounded down. Ordinary windows have step = stride, parts = 1
/// and reach = kernel. Adaptive ones, from floor(o pixels / windows) to ceil((o + 1) pixels / windows) - 1, have step =
/// pixels, parts = windows and reach = pixels + windows - 1.
class PoolAxis {
 public:
  /// The pixels of a window, or the windows over a pixel, in [begin, end).
  struct Range {
    int begin, end;
  };

  /// Makes the windows along the rows (axis 1) or the columns (axis 2) from images to their pooled ones.
  PoolAxis(const Shape& image, const Shape& pooled, const Pool2dOptions& options, int axis)
      : pixels_(static_cast<int>(image[axis])), windows_(static_cast<int>(pooled[axis])) {
    const auto of_axis = [axis](Size2d size) { return axis == 1 ? size.height : size.width; };
    const bool is_adaptive = options.kernel == 0;
    kernel_ = is_adaptive ? pixels_ / windows_ + 2 : of_axis(options.kernel);
    padding_ = of_axis(options.padding);
    counts_padding_ = options.count_include_pad && !is_adaptive;
    step_ = is_adaptive ? pixels_ : of_axis(options.stride);
    parts_ = is_adaptive ? windows_ : 1;
    reach_ = is_adaptive ? step_ + parts_ - 1 : kernel_;
  }

  CONVOY_HOST_DEVICE int pixels() const { return pixels_; }
  CONVOY_HOST_DEVICE int windows() const { return windows_; }
  /// Returns the size of the largest window, or a little more.
  CONVOY_HOST_DEVICE int kernel() const { return kernel_; }
  /// Returns the first pixel of a window, which may be in the padding.
  CONVOY_HOST_DEVICE int start(int window) const {
    return static_cast<int>(window * step_ / parts_) - padding_;
  }
  /// Returns the pixels of a window that are inside the image.
  CONVOY_HOST_DEVICE Range pixels_of(int window) const {
    const int first = start(window), last = end(window);
    return {first > 0 ? first : 0, last < pixels_ ? last : pixels_};
  }
  /// Returns the number of pixels that the average of a window counts: those inside the image or, if the padding
  /// counts, inside the padded image.
  CONVOY_HOST_DEVICE int divisor(int window) const {
    const Range inside = pixels_of(window);
    if (!counts_padding_) return inside.end - inside.begin;
    const int last = end(window), padded = pixels_ + padding_;
    return (last < padded ? last : padded) - start(window);
  }
  /// Returns the windows that cover a pixel.
  CONVOY_HOST_DEVICE Range windows_over(int pixel) const {
    const std::int64_t behind = (std::int64_t{pixel} + padding_ + 1) * parts_;
    const auto last = static_cast<int>((behind + step_ - 1) / step_);
    return {behind <= reach_ ? 0 : static_cast<int>((behind - reach_ + step_ - 1) / step_),
            last < windows_ ? last : windows_};
  }
  /// Returns whether the averages of all windows have the divisor kernel().
  bool is_uniform() const { return parts_ == 1 && divisor(0) == kernel_ && divisor(windows_ - 1) == kernel_; }

 private:
  CONVOY_HOST_DEVICE int end(int window) const {
    return static_cast<int>((window * step_ + reach_) / parts_) - padding_;
  }

  int pixels_, windows_, kernel_, padding_;
  bool counts_padding_;
  std::int64_t step_, parts_, reach_;
};

}  // namespace convoy::kernels
