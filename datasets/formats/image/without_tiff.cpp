// Replaces tiff.cpp in a build without libtiff.
#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {

bool reads_tiff() { return false; }

Pixels decode_with_libtiff(std::string_view, const std::string& name) {
  fail<DataError>(
      "{}: a TIFF image, which this build does not read; install libtiff-dev 4.5 or later, configure "
      "and build again",
      name);
}

}  // namespace convoy::data
