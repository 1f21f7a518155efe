// Replaces heif.cpp in a build without libheif.
#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {

bool reads_heif() { return false; }

Samples decode_with_libheif(std::string_view, const std::string& name) {
  fail<DataError>(
      "{}: a HEIC image, which this build does not read; install libheif-dev, configure and build again",
      name);
}

}  // namespace convoy::data
