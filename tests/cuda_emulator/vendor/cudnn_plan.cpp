#include "tests/cuda_emulator/vendor/cudnn_plan.h"

#include <algorithm>
#include <utility>

#include "tests/cuda_emulator/vendor/cudnn_json.h"

namespace convoy::emulator {
namespace {

const cudnnContext& handle_of(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  return emulator::handle_of(descriptor.value<const void*>(name));
}

struct Engine {
  Graph graph;
  FusedConvolution fused;
  std::int64_t index = 0;
};

struct Config {
  Engine engine;
  Knobs knobs;
  bool is_compiled = false;
};

Engine make_engine(Descriptor& descriptor) {
  const Graph& graph = descriptor.nested(CUDNN_ATTR_ENGINE_OPERATION_GRAPH).as<Graph>();
  Engine made{.graph = graph,
              .fused = fused_convolution(graph),
              .index = descriptor.value<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)};
  const std::string why = objection(made.index, made.fused);
  if (!why.empty()) refuse(CUDNN_STATUS_NOT_SUPPORTED, "engine " + std::to_string(made.index) + ": " + why);
  descriptor.put(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, notes_of(made.index));
  descriptor.put(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, behavior_of(made.index));
  return made;
}

Config make_config(const Descriptor& descriptor) {
  Config made{.engine = descriptor.nested(CUDNN_ATTR_ENGINECFG_ENGINE).as<Engine>(), .knobs = {}};
  if (descriptor.has(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) {
    for (const DescriptorPtr& choice :
         descriptor.attributes.at(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES).descriptors) {
      const auto type = choice->value<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
      const auto value = choice->value<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
      if (!made.knobs.emplace(type, value).second)
        refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "a knob is set twice");
    }
  }
  check_knobs(made.engine.index, made.knobs);
  return made;
}

DescriptorPtr finalized(cudnnBackendDescriptorType_t type, const std::function<void(Descriptor&)>& fill) {
  const auto made = std::make_shared<Descriptor>(type);
  fill(*made);
  finalize(*made);
  return made;
}

/// Returns an engine configuration of a graph as a descriptor.
DescriptorPtr config_of(const DescriptorPtr& graph, const EngineChoice& choice) {
  const DescriptorPtr engine = finalized(CUDNN_BACKEND_ENGINE_DESCRIPTOR, [&](Descriptor& made) {
    made.put(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph});
    made.put(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, std::vector{choice.engine});
  });
  std::vector<DescriptorPtr> knobs;
  for (const auto& [type, value] : choice.knobs) {
    knobs.push_back(
        finalized(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, [&, of = type, at = value](Descriptor& made) {
          made.put(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, std::vector{of});
          made.put(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, std::vector{at});
        }));
  }
  return finalized(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, [&](Descriptor& made) {
    made.put(CUDNN_ATTR_ENGINECFG_ENGINE, {engine});
    if (!knobs.empty()) made.put(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs);
  });
}

/// Returns the results of the heuristics as descriptors.
std::vector<DescriptorPtr> make_results(const Descriptor& heuristics_descriptor) {
  const DescriptorPtr& graph =
      heuristics_descriptor.attributes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).descriptors.front();
  const auto mode = heuristics_descriptor.value<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
  std::vector<DescriptorPtr> results;
  for (const EngineChoice& choice : heuristics(fused_convolution(graph->as<Graph>()), mode))
    results.push_back(config_of(graph, choice));
  return results;
}

bool is_compiled(std::int64_t engine) {
  const auto notes = behavior_of(engine);
  return std::find(notes.begin(), notes.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != notes.end();
}

/// Replaces the JSON text of a plan by the engine configuration that it describes.
void restore_config(Descriptor& descriptor, int gpu) {
  require(!descriptor.has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG),
          "a plan has either a JSON text or an engine configuration");
  const std::vector<char> text = descriptor.values<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  StoredPlan stored = plan_from_json({text.data(), text.size()});
  stored.graph.gpu = gpu;
  const auto graph = std::make_shared<Descriptor>(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph->object = stored.graph;
  graph->is_finalized = true;
  descriptor.put(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {config_of(graph, stored.choice)});
  ++vendor_state().counts.restored_plans;
}

Plan make_plan(Descriptor& descriptor) {
  const int gpu = handle_of(descriptor, CUDNN_ATTR_EXECUTION_PLAN_HANDLE).gpu;
  const bool is_restored = descriptor.has(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
  if (is_restored) restore_config(descriptor, gpu);
  require(descriptor.has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), "a plan has no engine configuration");
  auto& config = std::any_cast<Config&>(
      descriptor.attributes.at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).descriptors.front()->object);
  const std::int64_t engine = config.engine.index;
  require(gpu == config.engine.graph.gpu, "the plan's handle belongs to another GPU than its graph");
  const CudnnSettings& settings = vendor_state().settings.cudnn;
  if (const auto refused = settings.refused.find(engine); refused != settings.refused.end())
    refuse(refused->second, "engine " + std::to_string(engine) + " has no kernel for this plan");
  if (!is_restored && is_compiled(engine)) {
    if (std::exchange(config.is_compiled, true))  // as observed with the real library (9.19)
      refuse(CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED, "the engine configuration was compiled before");
    if (vendor_state().compiled_plans >= settings.max_compiled_plans)
      refuse(CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED, "the settings permit no further compilation");
    ++vendor_state().compiled_plans;
    ++vendor_state().counts.compiled_plans;
  }
  Plan made{.gpu = gpu,
            .fused = config.engine.fused,
            .choice = {.engine = engine, .knobs = config.knobs},
            .workspace_bytes = workspace_of(engine, config.engine.fused, config.knobs)};
  descriptor.put(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                 std::vector{static_cast<std::int64_t>(made.workspace_bytes)});
  const std::string json = to_json({.graph = config.engine.graph, .choice = made.choice});
  descriptor.put(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                 std::vector<char>(json.begin(), json.end()));
  return made;
}

VariantPack make_variant_pack(const Descriptor& descriptor) {
  const auto ids = descriptor.values<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = descriptor.values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  require(ids.size() == pointers.size(), "the numbers of ids and pointers differ");
  VariantPack made;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (!made.arrays.emplace(ids[i], pointers[i]).second)
      refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "an id has two pointers");
  if (descriptor.has(CUDNN_ATTR_VARIANT_PACK_WORKSPACE))
    made.workspace = descriptor.value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  return made;
}

}  // namespace

ObjectRegistry<cudnnContext>& cudnn_handles() {
  static ObjectRegistry<cudnnContext>& all =
      *new ObjectRegistry<cudnnContext>;  // never destroyed, like the driver
  return all;
}

const cudnnContext& handle_of(const void* handle) {
  const cudnnContext* const found = cudnn_handles().find(handle);
  require(found != nullptr, "not a handle, or it was destroyed");
  return *found;
}

Compilation begin_finalize(const Descriptor& descriptor) {
  const bool is_new = descriptor.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
                      !descriptor.is_finalized && descriptor.has(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG) &&
                      descriptor.has(CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
  if (!is_new) return {};
  const auto* const handle = descriptor.value<const void*>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
  VendorState& state = vendor_state();
  require(state.busy_handles.insert(handle).second, "another thread finalizes a plan with the same handle");
  state.counts.max_concurrent_plans =
      std::max(state.counts.max_concurrent_plans, static_cast<int>(state.busy_handles.size()));
  const std::int64_t engine =
      descriptor.nested(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).as<Config>().engine.index;
  const auto ms = state.settings.cudnn.finalize_ms.find(engine);
  return {
      .handle = handle,
      .duration = std::chrono::milliseconds(ms != state.settings.cudnn.finalize_ms.end() ? ms->second : 0)};
}

void end(const Compilation& compilation) { vendor_state().busy_handles.erase(compilation.handle); }

void finalize(Descriptor& descriptor) {
  require(!descriptor.is_finalized, to_string(descriptor.type) + " is already finalized");
  check_complete(descriptor);
  switch (descriptor.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: descriptor.object = make_tensor(descriptor); break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: descriptor.object = make_convolution(descriptor); break;
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR: descriptor.object = make_pointwise(descriptor); break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      descriptor.object = make_pointwise_operation(descriptor);
      break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      descriptor.object = make_convolution_operation(descriptor);
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      descriptor.object = make_graph(descriptor, handle_of(descriptor, CUDNN_ATTR_OPERATIONGRAPH_HANDLE).gpu);
      descriptor.put(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64,
                     std::vector{cudnn_engine::kCount});
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      descriptor.put(CUDNN_ATTR_ENGINEHEUR_RESULTS, make_results(descriptor));
      break;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: descriptor.object = make_engine(descriptor); break;
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: descriptor.object = make_config(descriptor); break;
    case CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR: break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: descriptor.object = make_plan(descriptor); break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: descriptor.object = make_variant_pack(descriptor); break;
  }
  descriptor.is_finalized = true;
}

}  // namespace convoy::emulator
