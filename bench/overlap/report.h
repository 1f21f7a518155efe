// The output of convoy-bench-overlap: the results of every plan on every link, and the goals.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/overlap/link.h"
#include "bench/overlap/plans.h"
#include "bench/overlap/replay.h"

namespace convoy::bench {

/// The results of one plan on one link.
struct OverlapRow {
  DType sent = DType::f32;
  Link link;
  std::string plan;
  Exposure exposure;                 // simulated
  std::optional<RealExposure> real;  // measured in real steps
};

/// Simulates each plan on each link, with gradients sent in the type that backward writes and in bf16.
std::vector<OverlapRow> simulate_all(const StepRecord& record, const std::vector<NamedPlan>& plans,
                                     const std::vector<Link>& links);

/// A goal for gradients sent in the type that backward writes.
struct Goal {
  std::string text;  // "exposed at 475 GB/s, of the step"
  double found = 0;  // a fraction
  double maximum = 0;
  bool met() const { return found <= maximum; }
};

/// Returns the goals for the bandwidths that occur in `rows`.
std::vector<Goal> goals_of(const StepRecord& record, const std::vector<OverlapRow>& rows);

/// Returns the results as Markdown: one table per type, and the goals.
std::string to_string(const StepRecord& record, const std::vector<OverlapRow>& rows);
/// Writes the results as JSON. Throws OutputError if the file cannot be written.
void write_json(const StepRecord& record, const std::vector<OverlapRow>& rows,
                const std::filesystem::path& file);

}  // namespace convoy::bench
