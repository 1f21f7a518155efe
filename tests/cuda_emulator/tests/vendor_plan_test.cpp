// Tests of execution plans of the emulated cuDNN: compiled at run time, stored as JSON, finalized by several
// threads. The statuses are those of the real library (9.19).
#include <gmock/gmock.h>

#include <string>
#include <thread>

#include "tests/cuda_emulator/tests/vendor_convolution_fixture.h"

namespace convoy::emulator {
namespace {

using namespace cudnn_engine;  // NOLINT: the engine constants
constexpr auto kJson = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;

class VendorPlan : public VendorConvolution {
 protected:
  std::string json_of(const RawDescriptor& plan) {
    std::int64_t count = 0;
    EXPECT_EQ(cudnnBackendGetAttribute(plan.get(), kJson, CUDNN_TYPE_CHAR, 0, &count, nullptr),
              CUDNN_STATUS_SUCCESS);
    std::string text(static_cast<std::size_t>(count), ' ');
    EXPECT_EQ(cudnnBackendGetAttribute(plan.get(), kJson, CUDNN_TYPE_CHAR, count, &count, text.data()),
              CUDNN_STATUS_SUCCESS);
    return text;
  }
  /// Returns the first configuration of the engine that the heuristics list.
  RawDescriptor config_of(const RawDescriptor& graph, std::int64_t engine) {
    RawDescriptor heuristics = heuristics_of(graph);
    for (RawDescriptor& config :
         heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
      auto engines = config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      if (engines.at(0).get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX).at(0) == engine)
        return std::move(config);
    }
    ADD_FAILURE() << "the heuristics do not list engine " << engine;
    return RawDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  }
  RawDescriptor unfinalized(const RawDescriptor& config, cudnnHandle_t handle) {
    RawDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle).set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    return plan;
  }
  RawDescriptor restored(const std::string& json) {
    RawDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_);
    plan.set(kJson, CUDNN_TYPE_CHAR, std::ssize(json), json.data()).finalize();
    return plan;
  }
};

TEST_F(VendorPlan, IsRestoredFromItsJsonWithoutCompilation) {
  for (const RawDescriptor* graph :
       {&convolution_graph(kForward, {}), &convolution_graph(kBackwardFilter, {}, CUDNN_DATA_FLOAT, 16, 1, 1),
        &fused_graph({}, {})}) {
    reset_vendor_counts();
    RawDescriptor plan = plan_of(*graph, kKnobs, {{CUDNN_KNOB_TYPE_SPLIT_K, 4}});
    ASSERT_EQ(plan.status(), CUDNN_STATUS_SUCCESS);
    const std::string json = json_of(plan);
    RawDescriptor again = restored(json);
    ASSERT_EQ(again.status(), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(workspace_of(again), workspace_of(plan));
    EXPECT_EQ(json_of(again), json);
    EXPECT_EQ(vendor_counts().compiled_plans, 1);
    EXPECT_EQ(vendor_counts().restored_plans, 1);
  }
}

TEST_F(VendorPlan, RestoredOneComputesTheSame) {
  std::vector<float> x_values(elements(Sizes{}.x())), w_values(elements(Sizes{}.filter()));
  for (std::size_t i = 0; i < x_values.size(); ++i) x_values[i] = static_cast<float>(i % 7) - 3;
  for (std::size_t i = 0; i < w_values.size(); ++i) w_values[i] = static_cast<float>(i % 5) - 2;
  const Numbers<float> x(*gpu_, x_values), w(*gpu_, w_values), y(*gpu_, elements(Sizes{}.y())),
      z(*gpu_, elements(Sizes{}.y()));
  RawDescriptor plan = plan_of(convolution_graph(kForward, {}), kKnobs), again = restored(json_of(plan));
  ASSERT_EQ(execute_with_workspace(plan, {1, 2, 3}, x, w, y), CUDNN_STATUS_SUCCESS);
  ASSERT_EQ(execute_with_workspace(again, {1, 2, 3}, x, w, z), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(y.values(), z.values());
}

TEST_F(VendorPlan, RefusesDamagedAndForeignJson) {
  const std::string json = json_of(plan_of(convolution_graph(kForward, {}), kKnobs));
  const auto status = [&](const std::string& text) { return restored(text).status(); };
  EXPECT_EQ(status(json), CUDNN_STATUS_SUCCESS);
  for (const std::string& text : {std::string(), std::string("hello"), std::string("{}"), std::string("[]"),
                                  json.substr(0, json.size() / 2)})
    EXPECT_EQ(status(text), CUDNN_STATUS_BAD_PARAM) << text;
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    return text.replace(text.find(from), from.size(), to);
  };
  EXPECT_EQ(status(replaced("\"engineId\":11", "\"engineId\":300")), CUDNN_STATUS_NOT_SUPPORTED);
  set(VendorSettings{.cudnn = {.version = 91800}});
  EXPECT_EQ(status(json), CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH);
  set(VendorSettings{});
  Settings other = settings();
  other.driver_version += 10;
  {
    const ScopedSettings scoped(other);
    EXPECT_EQ(status(json), CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH) << "another driver";
  }
  other = settings();
  other.capability = 80;
  const ScopedSettings scoped(other);
  EXPECT_EQ(status(json), CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH) << "another GPU";
}

TEST_F(VendorPlan, HasJsonOnlyOnceFinalizedAndOnlyAsAWhole) {
  RawDescriptor plan = plan_of(convolution_graph(kForward, {}), kKnobs);
  std::int64_t count = -5;
  char letters[16];
  const auto get = [&](const RawDescriptor& from, std::int64_t requested, void* into) {
    return cudnnBackendGetAttribute(from.get(), kJson, CUDNN_TYPE_CHAR, requested, &count, into);
  };
  EXPECT_EQ(get(RawDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR), 0, nullptr),
            CUDNN_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(get(plan, 16, letters), CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
  EXPECT_EQ(count, -5);
  const std::string json = json_of(plan);
  EXPECT_EQ(plan.set(kJson, CUDNN_TYPE_CHAR, std::ssize(json), json.data()).status(), CUDNN_STATUS_BAD_PARAM)
      << "finalized";

  const RawDescriptor config = config_of(convolution_graph(kForward, {}), kTensorCore);
  RawDescriptor both = unfinalized(config, handle_);
  both.set(kJson, CUDNN_TYPE_CHAR, std::ssize(json), json.data());
  EXPECT_EQ(both.status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(both.finalize().status(), CUDNN_STATUS_BAD_PARAM);
  // The real library crashes.
  RawDescriptor without_handle(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  without_handle.set(kJson, CUDNN_TYPE_CHAR, std::ssize(json), json.data()).finalize();
  EXPECT_EQ(without_handle.status(), CUDNN_STATUS_BAD_PARAM);
}

TEST_F(VendorPlan, CompilesAnEngineConfigurationOnce) {
  const RawDescriptor& graph = convolution_graph(kForward, {});
  const RawDescriptor compiled = config_of(graph, kKnobs), precompiled = config_of(graph, kTensorCore);
  EXPECT_EQ(unfinalized(compiled, handle_).finalize().status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(unfinalized(compiled, handle_).finalize().status(),
            CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED);
  EXPECT_EQ(unfinalized(precompiled, handle_).finalize().status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(unfinalized(precompiled, handle_).finalize().status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(vendor_counts().compiled_plans, 1);
}

TEST_F(VendorPlan, IsFinalizedByThreadsWithHandlesOfTheirOwn) {
  const RawDescriptor& graph = convolution_graph(kForward, {});
  cudnnHandle_t other = nullptr;
  ASSERT_EQ(cudnnCreate(&other), CUDNN_STATUS_SUCCESS);
  set(VendorSettings{.cudnn = {.finalize_ms = {{kKnobs, 300}}}});
  const RawDescriptor compiled = config_of(graph, kKnobs), precompiled = config_of(graph, kTensorCore);
  RawDescriptor slow = unfinalized(compiled, handle_);
  std::thread thread([&] { slow.finalize(); });
  const auto status_with = [&](cudnnHandle_t handle) {
    return unfinalized(precompiled, handle).finalize().status();
  };
  while (vendor_counts().max_concurrent_plans < 1) std::this_thread::yield();
  EXPECT_EQ(status_with(handle_), CUDNN_STATUS_BAD_PARAM) << "the other thread uses the handle";
  EXPECT_EQ(status_with(other), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(vendor_counts().max_concurrent_plans, 2);
  thread.join();
  EXPECT_EQ(slow.status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(status_with(handle_), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnDestroy(other), CUDNN_STATUS_SUCCESS);
}

}  // namespace
}  // namespace convoy::emulator
