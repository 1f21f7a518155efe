#include "tests/kernels/cuda/planned/plan_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "convoy/kernels/runtime/library_versions.h"

namespace convoy::testing {
namespace {

using kernels::CudnnDescriptor;

constexpr kernels::EngineRules kPrecisions[] = {{.dtype = DType::f32},
                                                {.dtype = DType::f32, .tf32 = true},
                                                {.dtype = DType::f16},
                                                {.dtype = DType::bf16}};

std::string precision_of(const kernels::EngineRules& rules) {
  return rules.tf32 ? "tf32" : std::string(to_string(rules.dtype));
}

/// Returns the engine configurations that a kind of heuristics proposes; none if it fails.
std::vector<CudnnDescriptor> proposals(const kernels::CudnnTarget& gpu, const kernels::CudnnGraph& graph,
                                       cudnnBackendHeurMode_t mode) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  gpu.configure(heuristics);
  if (heuristics.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  return heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                        heuristics.count(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR));
}

Planned plan_by(const kernels::CudnnTarget& gpu, const std::shared_ptr<const kernels::CudnnGraph>& graph,
                const kernels::EngineRules& rules, cudnnBackendHeurMode_t mode) {
  Planned planned;
  for (CudnnDescriptor& proposal : proposals(gpu, *graph, mode)) {
    ++planned.proposals;
    const std::vector<CudnnDescriptor> engine =
        proposal.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
    if (!rules.allow(engine.front().get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                                     CUDNN_NUMERICAL_NOTE_TYPE_COUNT)))
      continue;
    ++planned.allowed;
    std::string reason;
    const auto plan = kernels::CudnnPlan::make(gpu, graph, std::move(proposal), {}, reason);
    if (!plan) continue;
    const auto index = engine.front().get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    const auto workspace = static_cast<std::int64_t>(plan->workspace_bytes());
    if (planned.plans++ == 0) {
      planned.first_engine = index;
      planned.first_workspace = workspace;
    }
    planned.engines.insert(index);
    planned.max_workspace = std::max(planned.max_workspace, workspace);
  }
  planned.is_fallback = mode == CUDNN_HEUR_MODE_FALLBACK;
  return planned;
}

std::string cell(const Planned& p) {
  return fmt::format("{}{} {} {} {} {} {} {}", p.is_fallback ? "F " : "", p.proposals, p.allowed, p.plans,
                     p.engines.size(), p.first_engine, p.first_workspace, p.max_workspace);
}

}  // namespace

Planned plan(const kernels::CudnnTarget& gpu, const kernels::Conv2dProblem& problem,
             const kernels::EngineRules& rules) {
  const auto graph = kernels::make_conv2d_graph(gpu, problem);
  Planned planned;
  for (const cudnnBackendHeurMode_t mode : kernels::kCudnnHeuristics) {
    planned = plan_by(gpu, graph, rules, mode);
    if (planned.plans > 0) break;
  }
  return planned;
}

std::vector<PlanRow> plan_rows(std::size_t step) {
  std::vector<PlanRow> rows;
  std::deque<DescribedGpu> gpus;
  for (const GpuDescription& gpu : gpu_descriptions()) gpus.emplace_back(gpu);
  const std::vector<ModelConvolution> convolutions = model_convolutions();
  for (const kernels::EngineRules& rules : kPrecisions)
    for (const ModelConvolution& convolution : convolutions)
      for (const kernels::Conv2dProblem& problem : problems_of(convolution, rules.dtype)) {
        PlanRow& row = rows.emplace_back();
        row.precision = precision_of(rules);
        row.problem = problem.text() + (rules.tf32 ? " tf32" : "");
        if (rows.size() % step != 0) continue;
        for (const DescribedGpu& gpu : gpus) row.gpus.push_back(plan(gpu, problem, rules));
      }
  return rows;
}

std::string csv_line(const PlanRow& row) {
  std::string text = row.problem;
  for (const Planned& planned : row.gpus) text += "," + cell(planned);
  return text;
}

std::string plans_csv(const std::vector<PlanRow>& rows) {
  std::string text = fmt::format("# {}\nproblem", cudnn_version_text());
  for (const GpuDescription& gpu : gpu_descriptions()) text += fmt::format(",{}", gpu.name);
  text += "\n";
  for (const PlanRow& row : rows) text += csv_line(row) + "\n";
  return text;
}

std::string plans_summary(const std::vector<PlanRow>& rows) {
  std::string text = fmt::format(
      "Planned with {}, {} images per batch.\n\n"
      "| GPU | precision | problems | without a plan | by fallback heuristics | proposals | plans | engines "
      "| largest workspace of a first plan, MB | of any plan, MB |\n|---|---|---|---|---|---|---|---|---|---|\n",
      cudnn_version_text(), kPlannedBatch);
  for (std::size_t gpu = 0; gpu < gpu_descriptions().size(); ++gpu)
    for (const kernels::EngineRules& rules : kPrecisions) {
      int problems = 0, unplanned = 0, fallback = 0, proposed = 0, plans = 0;
      std::set<std::int64_t> engines;
      std::int64_t first_workspace = 0, max_workspace = 0;
      for (const PlanRow& row : rows) {
        if (row.precision != precision_of(rules)) continue;
        const Planned& planned = row.gpus[gpu];
        ++problems;
        unplanned += planned.plans == 0;
        fallback += planned.is_fallback;
        proposed += planned.proposals;
        plans += planned.plans;
        engines.insert(planned.engines.begin(), planned.engines.end());
        first_workspace = std::max(first_workspace, planned.first_workspace);
        max_workspace = std::max(max_workspace, planned.max_workspace);
      }
      text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {:.1f} | {:.1f} |\n",
                          gpu_descriptions()[gpu].name, precision_of(rules), problems, unplanned, fallback,
                          proposed, plans, engines.size(), static_cast<double>(first_workspace) / 1e6,
                          static_cast<double>(max_workspace) / 1e6);
    }
  return text;
}

}  // namespace convoy::testing
