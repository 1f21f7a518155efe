// The times at which the gradients of a real training step were ready, which convoy-bench-overlap replays.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "convoy/kernels/base/dtype.h"

namespace convoy::bench {

/// One training step on one rank without gradient communication. Times are medians over several steps.
struct StepRecord {
  /// A gradient and the time at which backward had written it.
  struct Gradient {
    std::string name;
    std::int64_t numel = 0;
    double ready_ms = 0;  // since the start of backward
    friend bool operator==(const Gradient&, const Gradient&) = default;
  };

  std::string model = {};  // "resnet18"
  std::int64_t batch = 0;
  std::string precision = {};            // "fp32"
  std::string device = {};               // "cpu, 2 threads"; informational
  DType dtype = DType::f32;              // of the gradients that backward writes
  double step_ms = 0;                    // forward, backward and optimizer
  double backward_ms = 0;                // duration of backward; no gradient is ready later
  std::vector<Gradient> gradients = {};  // in the order of registration
  bool is_scaled = false;                // whether the times were scaled, not measured

  friend bool operator==(const StepRecord&, const StepRecord&) = default;

  std::vector<std::int64_t> numels() const;
  std::vector<double> ready_ms() const;
  std::size_t bytes() const;  // of all gradients
};

/// Returns the record with all times scaled such that the step takes `step_ms`: a projection to a faster or
/// slower machine. Throws UsageError if `step_ms` is not positive.
StepRecord scaled_to(StepRecord record, double step_ms);

/// Writes the record as JSON. Throws OutputError if the file cannot be written.
void write_record(const StepRecord& record, const std::filesystem::path& file);
/// Reads a record. Throws UsageError, naming the file, if it cannot be read, is damaged or is inconsistent.
StepRecord read_record(const std::filesystem::path& file);

}  // namespace convoy::bench
