// What a device can do, measured in the process whose figures are held against it.
#pragma once

#include "bench/kernel_rows.h"
#include "tests/op_cases/model_case.h"

namespace convoy::bench {

struct Ceilings {
  double bytes_per_second = 0;  // of a copy, read and written
  double flops_per_second = 0;  // of a product of large square matrices; 0 where it was not measured

  /// The roofline (Williams, Waterman and Patterson, CACM 52(4), 2009): no faster than its bytes move or its
  /// operations are done, whichever takes longer.
  double seconds_of(const testing::Cost& cost) const;
};

/// Bytes a second of the row's kernel: the median of seven, after a warm-up.
double measure_copy(const Device& device, const KernelRow& copy);

/// Rows of the square matrices whose product measure_product() takes.
std::int64_t product_size(const Device& device);
/// Operations a second of kernels/matmul.h on matrices of random values: the median of seven, after a
/// warm-up.
double measure_product(const Device& device, DType dtype);

}  // namespace convoy::bench
