// Registration of the rows of convoy-bench-kernels with Google Benchmark.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/kernels/ceilings.h"
#include "bench/kernels/kernel_rows.h"
#include "convoy/apps/flags/compute.h"
#include "tests/testing/op_cases/model_case.h"

namespace convoy::bench {

/// Returns the name that a filter is matched with: a row such as "resnet18/linear_512x10/forward", and the
/// suffix that Google Benchmark appends.
std::string full_name(const std::string& row);

/// The selected kernels and ops, and the ceilings that they are compared with.
class KernelBenchmarks {
 public:
  /// Selects the rows whose names match `filter` by Google Benchmark's rules: an extended regular expression,
  /// "" for all rows, and a leading '-' to invert the match. Throws UsageError if the expression is invalid
  /// or no row matches.
  KernelBenchmarks(std::vector<KernelRow> kernels, std::vector<testing::ModelCase> ops,
                   const std::string& filter);

  /// Returns the bytes and FLOPs of each row as Markdown tables.
  std::string table() const;

  /// Runs each row on an emulated GPU and returns what its kernels access, as a Markdown table.
  std::string counts(const DeviceContext& device) const;

  /// Measures the copy bandwidth, and the GEMM throughput if ops are selected.
  void measure_ceilings(const DeviceContext& device);
  /// Adds machine, versions, settings and ceilings to the context that Google Benchmark writes.
  void describe(const ComputeOptions& compute, const Precision& precision, std::int64_t batch) const;
  /// Registers all selected rows. This object must outlive RunSpecifiedBenchmarks().
  void register_all();

 private:
  struct Op {
    testing::ModelCase model_case;
    bool forward = false, backward = false;  // whether the filter selects the direction
  };
  class LastOp;
  KernelRow copy_;
  std::vector<KernelRow> kernels_;
  std::vector<Op> ops_;
  std::optional<DeviceContext> device_;
  // Owned here and not by the registered functions, which outlive the device.
  std::shared_ptr<LastOp> last_;
  Ceilings ceilings_;
};

}  // namespace convoy::bench
