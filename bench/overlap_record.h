// When a real training step had its gradients ready: what convoy-bench-overlap replays on links.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/runtime/dtype.h"

namespace convoy::bench {

/// One update of one rank that sums nothing. Times are medians over several.
struct StepRecord {
  struct Gradient {
    std::string name;
    std::int64_t numel = 0;
    double ready_ms = 0;  // after the beginning of backward
    friend bool operator==(const Gradient&, const Gradient&) = default;
  };

  std::string model = {};  // "resnet18"
  std::int64_t batch = 0;
  std::string precision = {};            // "fp32"
  std::string device = {};               // "cpu, 2 threads": for readers
  DType dtype = DType::f32;              // of the gradients as backward writes them
  double step_ms = 0;                    // forward, backward and optimizer
  double backward_ms = 0;                // how long it takes; no gradient is ready later
  std::vector<Gradient> gradients = {};  // in the order of registration
  bool is_scaled = false;                // its times are not those that were measured

  friend bool operator==(const StepRecord&, const StepRecord&) = default;

  std::vector<std::int64_t> numels() const;
  std::vector<double> ready_ms() const;
  std::size_t bytes() const;  // of all gradients
};

/// The same step on a machine that takes step_ms for it, each part of it in proportion: a projection.
/// UsageError where that is not above 0.
StepRecord scaled_to(StepRecord record, double step_ms);

/// As JSON. Reading: UsageError, which names the file, for one that cannot be read, is damaged, or tells of a
/// step that cannot have been.
void write_record(const StepRecord& record, const std::filesystem::path& file);
StepRecord read_record(const std::filesystem::path& file);

}  // namespace convoy::bench
