#include "tests/cuda_emulator/vendor/cudnn_json.h"

#include <nlohmann/json.hpp>

namespace convoy::emulator {

using Json = nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Tensor, id, type, dims, strides, alignment, is_virtual)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Convolution, compute, mode, strides, dilations, pre_paddings,
                                   post_paddings)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Pointwise, mode, compute, lower_clip)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ConvolutionOperation, direction, x, w, y, convolution, alpha, beta)

namespace {

Json node_of(const Operation& operation) {
  if (const auto* const convolution = std::get_if<ConvolutionOperation>(&operation))
    return {{"convolution", *convolution}};
  const auto& op = std::get<PointwiseOperation>(operation);
  Json node = {
      {"pointwise", op.pointwise}, {"x", op.x}, {"y", op.y}, {"alpha1", op.alpha1}, {"alpha2", op.alpha2}};
  if (op.b) node["b"] = *op.b;
  return node;
}

Operation operation_of(const Json& node) {
  if (node.contains("convolution")) return node["convolution"].get<ConvolutionOperation>();
  PointwiseOperation op{.pointwise = node.at("pointwise").get<Pointwise>(),
                        .x = node.at("x").get<Tensor>(),
                        .b = {},
                        .y = node.at("y").get<Tensor>(),
                        .alpha1 = node.at("alpha1"),
                        .alpha2 = node.at("alpha2")};
  if (node.contains("b")) op.b = node["b"].get<Tensor>();
  return op;
}

Json gpu_profile() {
  const Settings& settings = Driver::get().settings;
  return {{"deviceVer", 10 * settings.capability}, {"driverVer", settings.driver_version}};
}

}  // namespace

std::string to_json(const StoredPlan& plan) {
  Json nodes = Json::array();
  for (const Operation& operation : plan.graph.operations) nodes.push_back(node_of(operation));
  return Json{{"cudnnVersion", vendor_state().settings.cudnn.version},
              {"operationGraph", {{"nodes", std::move(nodes)}}},
              {"GPUProfile", gpu_profile()},
              {"engine", {{"engineId", plan.choice.engine}, {"knobChoices", plan.choice.knobs}}}}
      .dump();
}

StoredPlan plan_from_json(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    require(json.is_object(), "the JSON text of a plan is not an object");
    if (json.at("cudnnVersion") != vendor_state().settings.cudnn.version)
      refuse(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH, "the plan is of another version of cuDNN");
    if (json.at("GPUProfile") != gpu_profile())
      refuse(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, "the plan is for another GPU or driver");
    StoredPlan plan{.graph = {}, .choice = {.engine = json.at("engine").at("engineId"), .knobs = {}}};
    json.at("engine").at("knobChoices").get_to(plan.choice.knobs);
    for (const Json& node : json.at("operationGraph").at("nodes"))
      plan.graph.operations.push_back(operation_of(node));
    require(!plan.graph.operations.empty(), "the plan has no operation");
    return plan;
  } catch (const nlohmann::json::exception& error) {
    refuse(CUDNN_STATUS_BAD_PARAM, error.what());
  }
}

}  // namespace convoy::emulator
