#include "tests/cuda_emulator/vendor/cudnn_rules.h"

#include <limits>
#include <map>

namespace convoy::emulator {
namespace {

using Rules = std::vector<AttributeRule>;
constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMaxDimensions = 8, kMaxSpatial = 6;

AttributeRule one(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                  Presence presence = Presence::required) {
  return {.name = name, .type = type, .presence = presence};
}

AttributeRule several(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      std::int64_t maximum) {
  return {.name = name, .type = type, .maximum = maximum};
}

AttributeRule nested(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                     Presence presence = Presence::required) {
  return {.name = name, .type = CUDNN_TYPE_BACKEND_DESCRIPTOR, .presence = presence, .nested = {type}};
}

/// An attribute of any number of elements that the library sets.
AttributeRule read_only(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) {
  return {.name = name, .type = type, .minimum = 0, .maximum = kAny, .presence = Presence::read_only};
}

Rules tensor() {
  return {one(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE),
          several(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, kMaxDimensions),
          several(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, kMaxDimensions),
          one(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64),
          one(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64),
          one(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, Presence::optional)};
}

Rules convolution() {
  return {one(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE),
          one(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE),
          one(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64),
          several(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, kMaxSpatial),
          several(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, kMaxSpatial),
          several(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, kMaxSpatial),
          several(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, kMaxSpatial)};
}

/// Attributes of a convolution operation: three tensors, alpha, beta and the convolution.
Rules operation(cudnnBackendAttributeName_t a, cudnnBackendAttributeName_t b, cudnnBackendAttributeName_t c,
                cudnnBackendAttributeName_t alpha, cudnnBackendAttributeName_t beta,
                cudnnBackendAttributeName_t convolution) {
  return {nested(a, CUDNN_BACKEND_TENSOR_DESCRIPTOR),
          nested(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR),
          nested(c, CUDNN_BACKEND_TENSOR_DESCRIPTOR),
          one(alpha, CUDNN_TYPE_FLOAT),
          one(beta, CUDNN_TYPE_FLOAT),
          nested(convolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)};
}

Rules graph() {
  return {one(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE),
          {.name = CUDNN_ATTR_OPERATIONGRAPH_OPS,
           .type = CUDNN_TYPE_BACKEND_DESCRIPTOR,
           .maximum = kAny,
           .nested = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                      CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR}},
          read_only(CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64)};
}

const std::map<cudnnBackendDescriptorType_t, Rules>& all_rules() {
  static const std::map<cudnnBackendDescriptorType_t, Rules> all = {
      {CUDNN_BACKEND_TENSOR_DESCRIPTOR, tensor()},
      {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, convolution()},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
       operation(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC)},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
       operation(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                 CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC)},
      {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
       operation(
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
           CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC)},
      {CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
       {one(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE),
        one(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE),
        one(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, CUDNN_TYPE_FLOAT, Presence::optional)}},
      {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
       {nested(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
        nested(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_BACKEND_TENSOR_DESCRIPTOR),
        nested(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_BACKEND_TENSOR_DESCRIPTOR, Presence::optional),
        nested(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_BACKEND_TENSOR_DESCRIPTOR),
        one(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, Presence::optional),
        one(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, Presence::optional)}},
      {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, graph()},
      {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
       {nested(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
        one(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE),
        read_only(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR)}},
      {CUDNN_BACKEND_ENGINE_DESCRIPTOR,
       {nested(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
        one(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64),
        read_only(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE),
        read_only(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE)}},
      {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR,
       {one(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE),
        one(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64)}},
      {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
       {nested(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR),
        {.name = CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
         .type = CUDNN_TYPE_BACKEND_DESCRIPTOR,
         .maximum = CUDNN_KNOB_TYPE_COUNTS,
         .presence = Presence::optional,
         .nested = {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR}}}},
      {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
       {one(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE),
        nested(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
               Presence::optional),
        {.name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
         .type = CUDNN_TYPE_CHAR,
         .minimum = 0,
         .maximum = kAny,
         .presence = Presence::optional},
        read_only(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64)}},
      {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
       {several(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, kAny),
        several(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, kAny),
        one(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, Presence::optional)}}};
  return all;
}

}  // namespace

const std::vector<AttributeRule>& rules_of(cudnnBackendDescriptorType_t type) {
  static const Rules none;
  const auto found = all_rules().find(type);
  return found != all_rules().end() ? found->second : none;
}

}  // namespace convoy::emulator
