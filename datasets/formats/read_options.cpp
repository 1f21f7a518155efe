#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/transforms/resize.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {

void check_read_options(const ReadOptions& options) {
  check_image_side(options.image_size);
  check(options.test_fraction > 0 && options.test_fraction < 1,
        "test fraction {}: expected more than 0 and less than 1", options.test_fraction);
  check(options.workers >= 0, "ReadOptions::workers: found {}, expected 0 or more", options.workers);
}

}  // namespace convoy::data
