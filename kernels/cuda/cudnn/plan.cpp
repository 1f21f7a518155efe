// Makes cuDNN plans from engine heuristics or from text, and executes them.
#include "convoy/kernels/cuda/cudnn/plan.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <future>
#include <ranges>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {
namespace {

constexpr std::size_t kMaxThreads = 8;  // that compile plans: each needs memory of the host

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
  std::vector<std::string_view> words;
  for (const auto& word : std::views::split(text, ' ')) words.emplace_back(word.begin(), word.end());
  const std::size_t size = words.size();
  if (size < 4 || words[0] != "engine" || words[size - 2] != "workspace") return std::nullopt;
  if (size > 4 && words[2] != "knobs") return std::nullopt;
  const auto engine = parse_integer(words[1]), workspace = parse_integer(words.back());
  if (!engine || !workspace) return std::nullopt;
  PlanText plan{.engine = *engine, .knobs = {}, .workspace = *workspace};
  for (std::size_t i = 3; i < size - 2; ++i) {
    const auto knob = parse_knob(words[i]);
    if (!knob) return std::nullopt;
    plan.knobs.push_back(*knob);
  }
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

/// Returns whether cuDNN compiles plans of this engine at run time.
bool is_compiled(const CudnnDescriptor& engine_config) {
  const auto notes =
      engine_of(engine_config)
          .get<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT);
  return std::find(notes.begin(), notes.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != notes.end();
}

/// Returns the engine configurations that the heuristics propose and the rules allow. Sets `reason` if the
/// heuristics fail.
std::vector<CudnnDescriptor> proposals(const CudnnTarget& target, const CudnnGraph& graph,
                                       const EngineRules& rules, cudnnBackendHeurMode_t mode,
                                       std::string& reason) {
  CudnnDescriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.graph);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  target.configure(heuristics);
  if (const cudnnStatus_t status = heuristics.try_finalize(); status != CUDNN_STATUS_SUCCESS) {
    reason = cudnn_failure(status);
    return {};
  }
  const std::int64_t count = heuristics.count(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  std::vector<CudnnDescriptor> configs =
      heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
  std::erase_if(configs, [&](const CudnnDescriptor& config) { return !allowed(rules, engine_of(config)); });
  return configs;
}

}  // namespace

CudnnHandle::CudnnHandle(CudaStream& stream) : stream_(stream) {
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

std::optional<CudnnPlan> CudnnPlan::from_code(const CudnnTarget& target, const EngineRules& rules,
                                              std::string_view text, std::string_view code,
                                              std::string& reason) {
  const std::optional<PlanText> parsed = parse_plan(text);
  if (!parsed) {
    reason = "the text of the plan is malformed";
    return std::nullopt;
  }
  try {
    CudnnDescriptor descriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    target.configure(descriptor);
    descriptor.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, std::span(code));
    descriptor.finalize();
    std::vector<CudnnDescriptor> configs =
        descriptor.get(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, 1);
    check(configs.size() == 1, "cuDNN: found {} engine configurations in a plan, expected 1", configs.size());
    const CudnnDescriptor engine = engine_of(configs.front());
    CudnnPlan plan(nullptr, std::move(configs.front()), {}, std::move(descriptor));
    if (!allowed(rules, engine))
      reason = "its engine is less precise than the type requires";
    else if (engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX) != parsed->engine ||
             plan.workspace_bytes() != static_cast<std::size_t>(parsed->workspace))
      reason = "it is the code of another plan";
    else
      reason = "";
    if (!reason.empty()) return std::nullopt;
    plan.text_ = text;
    return plan;
  } catch (const DeviceError& error) {  // damaged, or for another GPU, driver or version of cuDNN
    reason = error.what();
    return std::nullopt;
  }
}

std::string CudnnPlan::code() const {
  if (!is_compiled(engine_config_)) return "";
  try {
    constexpr auto kName = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    const std::vector<char> json = plan_.get<char>(kName, plan_.count(kName, CUDNN_TYPE_CHAR));
    return {json.begin(), json.end()};
  } catch (const DeviceError&) {  // the engine does not store its code
    return "";
  }
}

std::string CudnnPlan::to_text() const {
  if (!text_.empty()) return text_;
  std::string text =
      fmt::format("engine {}", engine_of(engine_config_).get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
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
  // The thousands of a status are its category: not supported, internal error, execution failed. Some engines
  // accept the alignment that the graph states, and then refuse the addresses.
  if (status >= CUDNN_STATUS_NOT_SUPPORTED || status == CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER)
    return cudnn_failure(status);
  cudnn_check(status, "cudnnBackendExecute", __FILE_NAME__, __LINE__);
  return "";
}

std::string make_plans(const CudnnTarget& target, const std::shared_ptr<const CudnnGraph>& graph,
                       const EngineRules& rules, cudnnBackendHeurMode_t mode,
                       const std::function<bool(CudnnPlan)>& accept) {
  std::string reason;
  for (CudnnDescriptor& config : proposals(target, *graph, rules, mode, reason)) {
    std::optional<CudnnPlan> plan = CudnnPlan::make(target, graph, std::move(config), {}, reason);
    if (plan && accept(*std::move(plan))) break;
  }
  return reason;
}

std::vector<CudnnPlan> make_all_plans(
    const std::function<const CudnnTarget*(std::size_t thread)>& target_of_thread,
    const std::shared_ptr<const CudnnGraph>& graph, const EngineRules& rules, cudnnBackendHeurMode_t mode) {
  std::string reason;
  std::vector<CudnnDescriptor> configs = proposals(*target_of_thread(0), *graph, rules, mode, reason);
  std::vector<std::optional<CudnnPlan>> made(configs.size());
  std::atomic<std::size_t> next = 0;
  const auto make_some = [&](const CudnnTarget& target) {
    target.make_current();
    std::string failure;
    for (std::size_t i = next++; i < configs.size(); i = next++)
      made[i] = CudnnPlan::make(target, graph, std::move(configs[i]), {}, failure);
  };
  const auto compiled = std::count_if(configs.begin(), configs.end(), is_compiled);
  const auto threads = std::min(
      {static_cast<std::size_t>(compiled), kMaxThreads, static_cast<std::size_t>(available_cores())});
  std::vector<std::future<void>> others;  // their destructors wait
  for (std::size_t thread = 1; thread < threads; ++thread) {
    const CudnnTarget* const target = target_of_thread(thread);
    if (target == nullptr) break;
    others.push_back(std::async(std::launch::async, make_some, std::cref(*target)));
  }
  make_some(*target_of_thread(0));
  for (std::future<void>& other : others) other.get();

  std::vector<CudnnPlan> plans;
  for (std::optional<CudnnPlan>& plan : made)
    if (plan) plans.push_back(*std::move(plan));
  return plans;
}

}  // namespace convoy::kernels
