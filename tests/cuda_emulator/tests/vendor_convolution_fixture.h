// A fixture for convolutions with the emulated cuDNN: graphs, engines, plans and executions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/tests/fixture.h"
#include "tests/cuda_emulator/vendor/vendor.h"
#include "tests/cuda_emulator/vendor/vendor_cudnn.h"

namespace convoy::emulator {

/// A square convolution with the same padding and stride on all sides.
struct Sizes {
  std::int64_t n = 2, h = 5, w = 4, c = 8, k = 16, r = 3, stride = 1, padding = 1;

  std::int64_t oh() const { return (h + 2 * padding - r) / stride + 1; }
  std::int64_t ow() const { return (w + 2 * padding - r) / stride + 1; }
  Ints x() const { return {n, c, h, w}; }
  Ints filter() const { return {k, c, r, r}; }
  Ints y() const { return {n, k, oh(), ow()}; }
};

inline std::size_t elements(const Ints& dims) {
  return static_cast<std::size_t>(
      std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>()));
}

class VendorConvolution : public EmulatorTest {
 protected:
  void SetUp() override {
    EmulatorTest::SetUp();
    set(VendorSettings{});
    reset_vendor_counts();
    gpu_.emplace();
    gpu_->stream.make_current();
    ASSERT_EQ(cudnnCreate(&handle_), CUDNN_STATUS_SUCCESS);
    ASSERT_EQ(cudnnSetStream(handle_, gpu_->stream.handle()), CUDNN_STATUS_SUCCESS);
  }
  void TearDown() override {
    EXPECT_EQ(cudnnDestroy(handle_), CUDNN_STATUS_SUCCESS);
    parts_.clear();
    gpu_.reset();
    set(VendorSettings{});
    EmulatorTest::TearDown();
  }

  const RawDescriptor& keep(RawDescriptor part) {
    EXPECT_EQ(part.status(), CUDNN_STATUS_SUCCESS);
    return *parts_.emplace_back(std::make_unique<RawDescriptor>(std::move(part)));
  }

  RawDescriptor graph_of(const std::vector<const RawDescriptor*>& operations) {
    RawDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle_)
        .set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations)
        .finalize();
    return graph;
  }

  /// Returns a graph of one convolution. The tensor ids are x = 1, w = 2, y = 3.
  const RawDescriptor& convolution_graph(const OperationNames& names, const Sizes& s,
                                         cudnnDataType_t type = CUDNN_DATA_FLOAT, std::int64_t alignment = 16,
                                         float alpha = 1, float beta = 0) {
    const auto tensor = [&](std::int64_t id, const Ints& dims) -> const RawDescriptor& {
      return keep(TensorSpec{.id = id, .type = type, .dims = dims, .alignment = alignment}.make());
    };
    const ConvolutionSpec spec{.strides = Ints{s.stride, s.stride}, .padding = Ints{s.padding, s.padding}};
    const RawDescriptor& operation = keep(make_operation(names, tensor(1, s.x()), tensor(2, s.filter()),
                                                         tensor(3, s.y()), keep(spec.make()), alpha, beta));
    return keep(graph_of({&operation}));
  }

  struct FusedSpec {
    cudnnDataType_t type = CUDNN_DATA_HALF;      // of x, w and the bias
    cudnnDataType_t between = CUDNN_DATA_FLOAT;  // of the sums
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;  // of the bias and the ReLU
    std::optional<cudnnDataType_t> output = {};  // {}: as x
    std::optional<Ints> bias = {};               // {}: a number for each channel
    bool sum_in_memory = false;
    bool is_chain = true;  // false: the ReLU is of another array, tensor 5
    bool relu_is_first = false;
    float beta = 0;
  };
  /// Returns a graph of a convolution of tensors 1 and 2, a bias (tensor 4) and a ReLU. The output is tensor
  /// 3.
  const RawDescriptor& fused_graph(const Sizes& s, const FusedSpec& spec) {
    const auto tensor = [&](std::int64_t id, const Ints& dims, cudnnDataType_t type,
                            bool is_virtual = false) -> const RawDescriptor& {
      return keep(TensorSpec{.id = id, .type = type, .dims = dims, .is_virtual = is_virtual}.make());
    };
    const RawDescriptor &sum = tensor(10, s.y(), spec.between, !spec.sum_in_memory),
                        &next = tensor(11, s.y(), spec.between, spec.is_chain),
                        &output = tensor(3, s.y(), spec.output.value_or(spec.type)),
                        &bias = tensor(4, spec.bias.value_or(Ints{1, s.k, 1, 1}), spec.type),
                        &other = spec.is_chain ? next : tensor(5, s.y(), spec.between);
    const RawDescriptor& convolve =
        keep(make_operation(kForward, tensor(1, s.x(), spec.type), tensor(2, s.filter(), spec.type), sum,
                            keep(ConvolutionSpec{}.make()), 1, spec.beta));
    const RawDescriptor &add = keep(make_pointwise(CUDNN_POINTWISE_ADD, spec.compute)),
                        &relu = keep(make_pointwise(CUDNN_POINTWISE_RELU_FWD, spec.compute));
    const RawDescriptor& second = spec.relu_is_first ? keep(make_operation(relu, sum, nullptr, next))
                                                     : keep(make_operation(add, sum, &bias, next));
    const RawDescriptor& third = spec.relu_is_first ? keep(make_operation(add, other, &bias, output))
                                                    : keep(make_operation(relu, other, nullptr, output));
    return keep(graph_of({&convolve, &second, &third}));
  }

  RawDescriptor heuristics_of(const RawDescriptor& graph, cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A) {
    RawDescriptor made(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    made.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode).finalize();
    return made;
  }

  struct Listed {
    std::int64_t engine;
    std::vector<cudnnBackendNumericalNote_t> notes;
    std::map<int, std::int64_t> knobs;
    bool operator==(const Listed&) const = default;
  };
  std::vector<Listed> listed(const RawDescriptor& graph, cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A) {
    std::vector<Listed> result;
    RawDescriptor heuristics = heuristics_of(graph, mode);
    for (RawDescriptor& config :
         heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
      auto engines = config.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
      Listed one{.engine = engines.at(0).get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX).at(0),
                 .notes = engines.at(0).get<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE),
                 .knobs = {}};
      for (RawDescriptor& knob :
           config.get(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR))
        one.knobs[knob.get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE).at(0)] =
            knob.get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE).at(0);
      result.push_back(one);
    }
    return result;
  }

  /// Creates a plan from an engine index and knobs, as a program that has stored them.
  RawDescriptor plan_of(const RawDescriptor& graph, std::int64_t engine,
                        const std::map<cudnnBackendKnobType_t, std::int64_t>& knobs = {}) {
    RawDescriptor chosen(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    chosen.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph)
        .set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, engine)
        .finalize();
    RawDescriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    config.set(CUDNN_ATTR_ENGINECFG_ENGINE, chosen);
    std::vector<RawDescriptor> choices;
    for (const auto& [type, value] : knobs) {
      choices.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
      choices.back()
          .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, type)
          .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value);
      choices.back().finalize();
    }
    std::vector<const RawDescriptor*> all;
    for (const RawDescriptor& choice : choices) all.push_back(&choice);
    if (!all.empty()) config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, all);
    config.finalize();
    RawDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle_);
    if (config.status() == CUDNN_STATUS_SUCCESS)
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config).finalize();
    else
      refused_ = config.status();
    return plan;
  }
  std::size_t workspace_of(RawDescriptor& plan) {
    return static_cast<std::size_t>(plan.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE).at(0));
  }

  cudnnStatus_t execute(const RawDescriptor& plan, const Ints& ids, const std::vector<void*>& pointers,
                        void* workspace = nullptr) {
    RawDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids).set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers);
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, std::vector<void*>{workspace}).finalize();
    if (pack.status() != CUDNN_STATUS_SUCCESS) return pack.status();
    return cudnnBackendExecute(handle_, plan.get(), pack.get());
  }

  /// Executes a plan with a workspace of exactly the required size.
  template <class... Arrays>
  cudnnStatus_t execute_with_workspace(RawDescriptor& plan, const Ints& ids, const Arrays&... arrays) {
    const std::size_t bytes = workspace_of(plan);
    const Numbers<char> workspace(*gpu_, bytes);
    return execute(plan, ids, {static_cast<void*>(arrays.data())...}, bytes > 0 ? workspace.data() : nullptr);
  }

  std::optional<Gpu> gpu_;
  cudnnHandle_t handle_ = nullptr;
  std::vector<std::unique_ptr<RawDescriptor>> parts_;
  cudnnStatus_t refused_ = CUDNN_STATUS_SUCCESS;  // how the last plan_of() failed before there was a plan
};

}  // namespace convoy::emulator
