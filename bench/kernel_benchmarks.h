// The rows of convoy-bench-kernels as Google Benchmark's benchmarks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/compute.h"
#include "bench/ceilings.h"
#include "bench/kernel_rows.h"
#include "tests/op_cases/model_case.h"

namespace convoy::bench {

/// "resnet18/linear_512x10/forward", with what Google Benchmark appends to it: what a filter is matched with.
std::string full_name(const std::string& row);

class KernelBenchmarks {
 public:
  /// Keeps the rows of which a name matches `filter`, by Google Benchmark's rules: an extended regular
  /// expression, "" for all, a '-' in front for all others. UsageError where it is none or nothing matches.
  KernelBenchmarks(std::vector<KernelRow> kernels, std::vector<testing::ModelCase> ops,
                   const std::string& filter);

  /// What each row moves and computes, as Markdown.
  std::string table() const;

  /// The copy's, and the product's where ops are to be measured.
  void measure_ceilings(const Device& device);
  /// Makes all that a figure must state part of Google Benchmark's context.
  void describe(const ComputeOptions& compute, const Precision& precision, std::int64_t batch) const;
  /// This object must outlive RunSpecifiedBenchmarks().
  void register_all();

 private:
  struct Op {
    testing::ModelCase model_case;
    bool forward = false, backward = false;  // which the filter leaves
  };
  class LastOp;
  KernelRow copy_;
  std::vector<KernelRow> kernels_;
  std::vector<Op> ops_;
  std::optional<Device> device_;
  std::shared_ptr<LastOp> last_;  // here and not with Google Benchmark, which outlives the device
  Ceilings ceilings_;
};

}  // namespace convoy::bench
