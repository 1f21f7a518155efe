// Makes cuDNN plans from engine heuristics or from text, and executes them.
#include "convoy/kernels/cuda/cudnn/plan.h"

#include <algorithm>
#include <charconv>

#include "convoy/kernels/base/check.h"

namespace convoy::kernels {
namespace {

struct Knob {
  cudnnBackendKnobType_t type;
  std::int64_t value;
};

/// The parsed text of a plan: the engine, its knobs, and the workspace in bytes.
struct PlanText {
  std::int64_t engine = 0;
  std::vector<Knob> knobs;
  std::int64_t workspace = 0;
};

/// Removes the first word of `text`, up to the next space, and returns it.
std::string_view next_word(std::string_view& text) {
  const std::size_t length = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, length);
  text.remove_prefix(std::min(length + 1, text.size()));
  return word;
}

std::optional<std::int64_t> parse_integer(std::string_view word) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
  return value;
}

std::optional<Knob> parse_knob(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return std::nullopt;
  const auto type = parse_integer(word.substr(0, equals));
  const auto value = parse_integer(word.substr(equals + 1));
  if (!type || !value || *type < 0 || *type >= CUDNN_KNOB_TYPE_COUNTS) return std::nullopt;
  return Knob{static_cast<cudnnBackendKnobType_t>(*type), *value};
}

std::optional<PlanText> parse_plan(std::string_view text) {
  PlanText plan;
  if (next_word(text) != "engine") return std::nullopt;
  const auto engine = parse_integer(next_word(text));
  if (!engine) return std::nullopt;
  plan.engine = *engine;
  std::string_view word = next_word(text);
  if (word == "knobs") {
    for (word = next_word(text); word != "workspace"; word = next_word(text)) {
      const auto knob = parse_knob(word);
      if (!knob) return std::nullopt;
      plan.knobs.push_back(*knob);
    }
  }
  if (word != "workspace") return std::nullopt;
  const auto workspace = parse_integer(next_word(text));
  if (!workspace || !text.empty()) return std::nullopt;
  plan.workspace = *workspace;
  return plan;
}

CudnnDescriptor engine_of(const CudnnDescriptor& engine_config) {
  auto engines = engine_config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  check(engines.size() == 1, "cuDNN: found {} engines in an engine configuration, expected 1",
        engines.size());
  return std::move(engines.front());
}

bool allowed(const EngineRules& rules, const CudnnDescriptor& engine) {
  return rules.allow(engine.get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                             CUDNN_NUMERICAL_NOTE_TYPE_COUNT));
}

}  // namespace

CudnnHandle::CudnnHandle(CudaStream& stream) {
  stream.make_current();
  CUDNN_CHECK(cudnnCreate(&handle_));
  try {
    CUDNN_CHECK(cudnnSetStream(handle_, stream.handle()));
  } catch (...) {
    cudnnDestroy(handle_);
    throw;
  }
}

CudnnHandle::~CudnnHandle() { cudnnDestroy(handle_); }

void CudnnHandle::configure(CudnnDescriptor& descriptor) const {
  if (descriptor.type() == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
    descriptor.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle_);
  if (descriptor.type() == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
    descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_);
}

bool EngineRules::allow(std::span<const cudnnBackendNumericalNote_t> notes) const {
  const bool half = dtype == DType::f16 || dtype == DType::bf16;
  return std::none_of(notes.begin(), notes.end(), [&](cudnnBackendNumericalNote_t note) {
    switch (note) {
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE: return !half && !tf32;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13: return true;
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6: return half;
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: return deterministic;
      default: return false;
    }
  });
}

CudnnPlan::CudnnPlan(std::shared_ptr<const CudnnGraph> graph, CudnnDescriptor engine_config,
                     std::vector<CudnnDescriptor> parts, CudnnDescriptor plan)
    : graph_(std::move(graph)),
      engine_config_(std::move(engine_config)),
      parts_(std::move(parts)),
      plan_(std::move(plan)),
      workspace_bytes_(
          static_cast<std::size_t>(plan_.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE))) {}

std::optional<CudnnPlan> CudnnPlan::make(const CudnnTarget& target, std::shared_ptr<const CudnnGraph> graph,
                                         CudnnDescriptor engine_config, std::vector<CudnnDescriptor> parts,
                                         std::string& reason) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine_config);
  target.configure(plan);
  if (const cudnnStatus_t status = plan.try_finalize(); status != CUDNN_STATUS_SUCCESS) {
    reason = cudnn_failure(status);
    return std::nullopt;
  }
  return CudnnPlan(std::move(graph), std::move(engine_config), std::move(parts), std::move(plan));
}

std::optional<CudnnPlan> CudnnPlan::from_text(const CudnnTarget& target,
                                              std::shared_ptr<const CudnnGraph> graph,
                                              const EngineRules& rules, std::string_view text) {
  const std::optional<PlanText> parsed = parse_plan(text);
  if (!parsed) return std::nullopt;
  try {
    CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph->graph);
    engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, parsed->engine);
    target.configure(engine);
    engine.finalize();
    if (!allowed(rules, engine)) return std::nullopt;

    std::vector<CudnnDescriptor> choices;
    for (const Knob& knob : parsed->knobs) {
      CudnnDescriptor& choice = choices.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
      choice.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, knob.type);
      choice.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, knob.value);
      choice.finalize();
    }
    CudnnDescriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    if (!choices.empty()) config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, choices);
    config.finalize();

    std::vector<CudnnDescriptor> parts = std::move(choices);
    parts.push_back(std::move(engine));
    std::string reason;
    std::optional<CudnnPlan> plan =
        make(target, std::move(graph), std::move(config), std::move(parts), reason);
    // A different workspace means that this is not the plan that was timed.
    if (plan && plan->workspace_bytes() != static_cast<std::size_t>(parsed->workspace)) return std::nullopt;
    return plan;
  } catch (const DeviceError&) {  // this version of cuDNN does not have the engine or a knob
    return std::nullopt;
  }
}

std::int64_t CudnnPlan::engine() const {
  return engine_of(engine_config_).get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
}

std::string CudnnPlan::to_text() const {
  std::string text = fmt::format("engine {}", engine());
  // cuDNN reports a count of 0 for this attribute, so request the maximum.
  const auto knobs = engine_config_.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                        CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS);
  if (!knobs.empty()) text += " knobs";
  for (const CudnnDescriptor& knob : knobs)
    text += fmt::format(" {}={}",
                        static_cast<int>(knob.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)),
                        knob.get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  return text + fmt::format(" workspace {}", workspace_bytes_);
}

std::string CudnnPlan::try_execute(const CudnnHandle& handle, const std::vector<std::int64_t>& ids,
                                   const std::vector<void*>& arrays, void* workspace) const {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, arrays);
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace);
  pack.finalize();
  const cudnnStatus_t status = cudnnBackendExecute(handle.get(), plan_.get(), pack.get());
  // The thousands of a status are its category: not supported, internal error, execution failed.
  if (status >= CUDNN_STATUS_NOT_SUPPORTED) return cudnn_failure(status);
  cudnn_check(status, "cudnnBackendExecute", __FILE__, __LINE__);
  return "";
}

std::string make_plans(const CudnnTarget& target, const std::shared_ptr<const CudnnGraph>& graph,
                       const EngineRules& rules, cudnnBackendHeurMode_t mode,
                       const std::function<bool(CudnnPlan)>& accept) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph->graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  target.configure(heuristics);
  if (const cudnnStatus_t status = heuristics.try_finalize(); status != CUDNN_STATUS_SUCCESS)
    return cudnn_failure(status);

  std::string reason;
  const std::int64_t proposals =
      heuristics.count(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  for (CudnnDescriptor& config :
       heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, proposals)) {
    if (!allowed(rules, engine_of(config))) continue;
    std::optional<CudnnPlan> plan = CudnnPlan::make(target, graph, std::move(config), {}, reason);
    if (plan && accept(*std::move(plan))) break;
  }
  return reason;
}

}  // namespace convoy::kernels
