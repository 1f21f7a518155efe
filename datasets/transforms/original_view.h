// Random crops and rotations of the images of files, before they are resized to those that are trained.
#pragma once

#include <cstdint>

#include "convoy/datasets/transforms/resize.h"
#include "convoy/datasets/transforms/transforms.h"
#include "convoy/kernels/base/random.h"

namespace convoy::data {

/// Draws and computes views of original images. Every thread needs its own object.
class OriginalView {
 public:
  /// Views have height x width pixels.
  OriginalView(const OriginalViewOptions& options, std::int64_t height, std::int64_t width)
      : options_(options), height_(height), width_(width) {}
  /// Returns how many pixels the short side of the original image needs, so that the view of the sample `id` is not
  /// enlarged more than necessary.
  std::int64_t needed_side(const Random& random, std::uint64_t id) const;
  /// Writes the view of the sample `id`, [height, width, 3], to `out`. The box is choose_box() of
  /// kernels/shared/augment_choices.h, and the angle is words(id, 16)[0], uniform.
  void write(const PixelView& image, const Random& random, std::uint64_t id, std::uint8_t* out);

 private:
  OriginalViewOptions options_;
  std::int64_t height_, width_;
  SquareResizer resizer_{1};
  std::vector<std::uint8_t> region_, resized_;
};

}  // namespace convoy::data
