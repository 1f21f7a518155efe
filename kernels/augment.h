// From stored images to a training batch in one pass: gather, random crop, flip, cutout, normalise.
// Every choice is a function of (seed, epoch, sample id), so it is the same in any batch, worker, rank or
// device.
#pragma once

#include <array>

#include "kernels/random.h"
#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

struct AugmentOptions {
  int crop_padding = 0;  // pixels, fewer than the image's sides: it moves by -padding … padding on each axis
  bool reflect = false;  // what lies outside: mirrored pixels (without repeating the edge), else black
  int least_area = 0;  // percent, 1 to 100: a box of at least so much of the image, of sides 3 : 4 to 4 : 3,
                       // and no longer than the image's, is stretched to the whole (Szegedy et al.,
                       // arXiv:1409.4842, section 6); 0: none. Not with crop_padding
  bool flip = false;   // left-right, with probability 1/2
  int cutout = 0;      // side of a square set to the mean (0 after normalisation), its centre anywhere in the
                       // image (DeVries and Taylor, arXiv:1708.04552)
  std::array<float, 4> mean{0, 0, 0, 0};  // per channel, of pixels scaled to 0 … 1
  std::array<float, 4> inverse_std{1, 1, 1, 1};
};

// images u8 [M, H, W, C], C at most 4; rows i32 [N]: which images; ids i32 [N]: global sample ids that key
// the choices; out [N, H, W, C], of the same bits on every device: (pixel / 255 - mean) inverse_std in f32 or
// f64; f16 and bf16 are computed in f32 and rounded once. The choices, from words(id) of
// Random{seed, augmentation, epoch}: [0] how far the image moves down and [1] right, as to_below(word, 2
// padding + 1) - padding; then [2], the flip, by its top bit. From words(id, 1): [0] and [1] row and column
// of the cutout's centre, by to_below; its square begins cutout / 2 above and left of that. From words(id, 2)
// the box: [0] its area, uniform; [1] its shorter side over its longer one, uniform, and by the top bit of
// [2] which of them is the height; from words(id, 3): [0] and [1] where its top and left are, by to_below.
// Its pixels are interpolated (bilinear, centres of edge pixels half a pixel inside) in whole numbers, and
// rounded to bytes before they are normalised.
void augment(CpuStream&, ConstView images, ConstView rows, ConstView ids, const AugmentOptions& options,
             Random random, View out);
void augment(CudaStream&, ConstView images, ConstView rows, ConstView ids, const AugmentOptions& options,
             Random random, View out);

}  // namespace convoy
