// The committed table of the plans that cuDNN makes for the convolutions of the models.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/kernels/cuda/planned/described_gpu.h"
#include "tests/kernels/cuda/planned/model_convolutions.h"

namespace convoy::testing {

/// What cuDNN proposes for one problem: the result of the first heuristics that give a plan.
struct Planned {
  bool is_fallback = false;        // the plans are from the fallback heuristics
  int proposals = 0;               // engine configurations that the heuristics return
  int allowed = 0;                 // those that the rules of the precision allow
  int plans = 0;                   // those that finalize
  std::set<std::int64_t> engines;  // of the plans
  std::int64_t first_engine = -1;
  std::int64_t first_workspace = 0, max_workspace = 0;  // bytes
};

/// Plans one problem for a described GPU. Finalizes every proposal that the rules allow.
Planned plan(const kernels::CudnnTarget& gpu, const kernels::Conv2dProblem& problem,
             const kernels::EngineRules& rules);

/// One line of the table: a problem, and what is planned on each described GPU, in their order.
struct PlanRow {
  std::string problem;        // its text, with " tf32" for f32 that may be rounded to TF32
  std::string precision;      // "f32", "tf32", "f16" or "bf16"
  std::vector<Planned> gpus;  // empty: not planned
};

/// Returns a row for every convolution of every model in each precision. Plans one of `step` rows on each described GPU.
std::vector<PlanRow> plan_rows(std::size_t step);
/// Returns the line of a row as CSV.
std::string csv_line(const PlanRow& row);
/// Returns the table as CSV: the version of cuDNN, the names of the columns, one line per row.
std::string plans_csv(const std::vector<PlanRow>& rows);
/// Returns a Markdown table with one line per GPU and precision.
std::string plans_summary(const std::vector<PlanRow>& rows);

}  // namespace convoy::testing
