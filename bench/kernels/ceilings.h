// The upper bounds of a device, measured in the same process as the results that are compared with them.
#pragma once

#include "bench/kernels/kernel_rows.h"
#include "tests/testing/op_cases/model_case.h"

namespace convoy::bench {

/// The measured memory bandwidth and arithmetic throughput of a device.
struct Ceilings {
  double bytes_per_second = 0;  // bytes read plus bytes written by a copy
  double flops_per_second = 0;  // GEMM of large square matrices; 0 if not measured

  /// Returns the minimum time of an op by the roofline model (Williams, Waterman and Patterson, CACM 52(4),
  /// 2009): the larger of the times to move its bytes and to execute its operations.
  double seconds_of(const Cost& cost) const;
};

/// Returns the bytes per second of the row's kernel: the median of seven measurements after a warm-up.
double measure_copy(const DeviceContext& device, const KernelRow& copy);

/// Returns the number of rows of the square matrices that measure_gemm() multiplies.
std::int64_t gemm_size(const DeviceContext& device);
/// Returns the FLOP/s of kernels/matmul.h on matrices of random values: the median of seven measurements
/// after a warm-up.
double measure_gemm(const DeviceContext& device, DType dtype);

}  // namespace convoy::bench
