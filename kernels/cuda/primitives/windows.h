// Helpers for kernels over images: the coordinates of a thread's channels in [N, H, W, C], and the sliding
// windows of pooling and convolution.
#pragma once

#include <algorithm>
#include <type_traits>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/cuda/primitives/divisor.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels::cuda {

/// The coordinates of a pack of adjacent channels of one pixel.
struct PackCoordinates {
  std::int64_t pixel;  // index in the whole array: (image H + y) W + x
  std::int64_t image;
  int y, x;
  int channel;  // the first of the pack
};

/// The packs of an array [N, H, W, C], one per thread. The last pack of a pixel may extend past C.
class PackGrid {
 public:
  PackGrid(const Shape& shape, int channels_per_pack)
      : channels_per_pack_(channels_per_pack),
        packs_((shape[3] + channels_per_pack - 1) / channels_per_pack),
        width_(shape[2]),
        height_(shape[1]),
        size_(shape[0] * shape[1] * shape[2] * ((shape[3] + channels_per_pack - 1) / channels_per_pack)) {}

  CONVOY_HOST_DEVICE std::int64_t size() const { return size_; }

  /// Returns the coordinates of pack `index`. Adjacent indices are adjacent in memory.
  __device__ PackCoordinates coordinates(std::int64_t index) const {
    const std::int64_t pixel = packs_.quotient(index);
    const std::int64_t row = width_.quotient(pixel);
    const std::int64_t image = height_.quotient(row);
    return {.pixel = pixel,
            .image = image,
            .y = static_cast<int>(row - image * height_.value()),
            .x = static_cast<int>(pixel - row * width_.value()),
            .channel = static_cast<int>(index - pixel * packs_.value()) * channels_per_pack_};
  }

 private:
  int channels_per_pack_;
  Divisor packs_, width_, height_;
  std::int64_t size_;
};

/// The integers in [begin, end); empty if end <= begin.
struct Range {
  int begin, end;
};

/// One axis of a sliding window: window o covers the pixels o stride - padding + [0, kernel).
class WindowAxis {
 public:
  WindowAxis(std::int64_t pixels, std::int64_t windows, std::int64_t kernel, int stride, int padding)
      : pixels_(static_cast<int>(pixels)),
        windows_(static_cast<int>(windows)),
        kernel_(static_cast<int>(kernel)),
        stride_(stride),
        padding_(padding),
        by_stride_(stride) {}

  __device__ int pixels() const { return pixels_; }
  __device__ int windows() const { return windows_; }
  __device__ int kernel() const { return kernel_; }
  __device__ int stride() const { return stride_; }

  /// Returns the first pixel of a window, which may be in the padding.
  __device__ int start(int window) const { return window * stride_ - padding_; }

  /// Returns the pixels of a window that are inside the image.
  __device__ Range pixels_of(int window) const {
    return {.begin = std::max(start(window), 0), .end = std::min(start(window) + kernel_, pixels_)};
  }

  /// Returns the windows that cover a pixel.
  __device__ Range windows_over(int pixel) const {
    return {.begin = first_from(pixel - kernel_ + 1), .end = std::min(first_from(pixel + 1), windows_)};
  }

  /// Returns the windows whose pixel number `tap` (0 … kernel - 1) is inside the image.
  __device__ Range windows_with(int tap) const {
    return {.begin = first_from(-tap), .end = std::min(first_from(pixels_ - tap), windows_)};
  }

 private:
  /// Returns the first window that starts at or after `pixel`; 0 if `pixel` is before the padding.
  __device__ int first_from(int pixel) const {
    const int distance = pixel + padding_;
    return distance <= 0 ? 0 : by_stride_.quotient(distance - 1) + 1;
  }

  int pixels_, windows_, kernel_, stride_, padding_;
  Divisor by_stride_;
};

/// Calls f with a constant width: kVectorWidth<T> if `packs`, otherwise 1.
template <class T, class F>
void dispatch_width(bool packs, F&& f) {
  if (packs) {
    f(std::integral_constant<int, kVectorWidth<T>>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

/// Returns whether arrays with `channels` channels that begin at `pointers` can be accessed in the widest
/// packs of T.
template <class T, class... Pointers>
bool comes_in_packs(std::int64_t channels, const Pointers*... pointers) {
  return channels % kVectorWidth<T> == 0 && (is_aligned(pointers) && ...);
}

/// Returns the index of this thread in a one-dimensional grid.
__device__ inline std::int64_t thread_index() { return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

}  // namespace convoy::kernels::cuda
