// Times of ops and kernels on a device: runs a ModelCase as training does, and measures the upper bounds that the times are
// compared with, in the same process.
#pragma once

#include <functional>
#include <vector>

#include "bench/kernels/kernel_rows.h"
#include "tests/testing/op_cases/model_case.h"

namespace convoy::bench {

/// A ModelCase with its arguments on a device. The forward records the autograd graph, and the backward
/// starts from a gradient of ones. Arguments that are results of other ops in the network are recorded as
/// results here too: their gradients are allocated by the caching allocator, whereas parameters keep their
/// gradient tensors.
class OpRun {
 public:
  /// Initializes the arguments with random values and runs both directions once.
  OpRun(const testing::ModelCase& c, const DeviceContext& device);

  /// Returns the results of `calls` calls, each with its own graph.
  std::vector<Variable> forward(int calls) const { return forward(arguments(calls)); }

  /// Returns the wall time in seconds of `calls` forward calls, from an idle device until it is idle again.
  double forward_seconds(int calls) const;
  /// Returns the same for backward calls. All forwards run before, untimed, and their results stay in memory
  /// until their backward has run.
  double backward_seconds(int calls) const;

 private:
  using Arguments = std::vector<Variable>;
  /// Returns separate arguments for each call, because each call records a graph.
  std::vector<Arguments> arguments(int calls) const;
  std::vector<Variable> forward(const std::vector<Arguments>& arguments) const;

  testing::ModelCase case_;
  DeviceContext device_;
  std::vector<Tensor> values_;        // of the arguments
  std::vector<Variable> parameters_;  // undefined for arguments that are not parameters
  Variable source_;                   // the input of the ops that produced the arguments
  Tensor ones_;
};

/// Returns the wall time of `calls` calls of `work` in seconds, from an idle device until it is idle again.
double seconds_of(const DeviceContext& device, const std::function<void()>& work, int calls = 1);

/// Returns the number of calls to make between two synchronizations if one call takes `seconds`. On a GPU the
/// number is fixed and large enough that it does not wait for the host. On the CPU, where each call blocks,
/// the calls take a few milliseconds together.
int calls_to_time(const DeviceContext& device, double seconds);

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
