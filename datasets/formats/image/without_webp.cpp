// Replaces webp.cpp in a build without libwebp.
#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {

bool reads_webp() { return false; }

Samples decode_with_libwebp(std::string_view, const std::string& name) {
  fail<DataError>(
      "{}: a WebP image, which this build does not read; install libwebp-dev, configure and build again",
      name);
}

}  // namespace convoy::data
