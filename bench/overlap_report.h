// What convoy-bench-overlap prints and writes: every plan on every link, and the goals.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "bench/overlap_link.h"
#include "bench/overlap_plans.h"
#include "bench/overlap_replay.h"

namespace convoy::bench {

struct OverlapRow {
  DType sent = DType::f32;
  Link link;
  std::string plan;
  Exposure exposure;                 // simulated
  std::optional<RealExposure> real;  // of real steps
};

/// Simulated: gradients as backward writes them, and in bf16; on each link, each plan.
std::vector<OverlapRow> simulate_all(const StepRecord& record, const std::vector<NamedPlan>& plans,
                                     const std::vector<Link>& links);

/// A goal for gradients as backward writes them.
struct Goal {
  std::string text;  // "exposed at 475 GB/s, of the step"
  double found = 0;  // a fraction
  double most = 0;
  bool met() const { return found <= most; }
};

/// Those whose bandwidth is among the rows.
std::vector<Goal> goals_of(const StepRecord& record, const std::vector<OverlapRow>& rows);

/// Tables in Markdown, one a type.
std::string text_of(const StepRecord& record, const std::vector<OverlapRow>& rows);
/// OutputError where it cannot be written.
void write_json(const StepRecord& record, const std::vector<OverlapRow>& rows,
                const std::filesystem::path& file);

}  // namespace convoy::bench
