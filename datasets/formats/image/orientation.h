// The orientation of photographs: how the stored rows and columns are to be shown (EXIF 2.3, tag 274).
#pragma once

#include <string_view>

#include "convoy/datasets/formats/image/pixels.h"

namespace convoy::data {

/// Returns the orientation, 1 to 8, in the first directory of a TIFF file, which is also the form of EXIF
/// data. Returns 1, upright, if there is none, or if the directory is damaged: a photograph with damaged
/// metadata is still a photograph. Reads nothing outside `tiff`.
int orientation_of_tiff(std::string_view tiff);

/// Returns the image with the pixels moved such that an image of `orientation` (1 to 8) is upright.
/// Orientations 5 to 8 exchange width and height.
Pixels upright(Pixels pixels, int orientation);

}  // namespace convoy::data
