// Tests of misuse that the emulated cuDNN rejects, beyond what the real one is known to reject without a GPU
// (vendor_descriptor_test).
#include "tests/cuda_emulator/tests/vendor_convolution_fixture.h"

namespace convoy::emulator {
namespace {

using namespace cudnn_engine;  // NOLINT: its constants

class VendorMisuse : public VendorConvolution {
 protected:
  static constexpr std::int64_t kX = 1, kW = 2, kY = 3;

  RawDescriptor plain_plan() { return plan_of(convolution_graph(kForward, {}), kPlain); }

  const Ints ids_ = {kX, kW, kY};
};

TEST_F(VendorMisuse, EnvironmentWithoutANumber) {
  EXPECT_DEATH(run_again("VendorMisuse.Handles", "CONVOY_EMULATED_CUDNN_FAILURE", "x"),
               "CONVOY_EMULATED_CUDNN_FAILURE: found 'x', expected a number");
}

TEST_F(VendorMisuse, IncompleteDescriptors) {
  EXPECT_EQ(TensorSpec{.id = {}}.make().status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(TensorSpec{.type = {}}.make().status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(ConvolutionSpec{.padding = {}}.make().status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(RawDescriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR).finalize().status(),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(RawDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR).finalize().status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(RawDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR).finalize().status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(RawDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).finalize().status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(RawDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR).finalize().status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(RawDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR).finalize().status(),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(RawDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR).finalize().status(), CUDNN_STATUS_BAD_PARAM);
}

TEST_F(VendorMisuse, OperationWithoutAlphaAndBeta) {
  const RawDescriptor &x = keep(TensorSpec{.id = kX, .dims = Sizes{}.x()}.make()),
                      &w = keep(TensorSpec{.id = kW, .dims = Sizes{}.filter()}.make()),
                      &y = keep(TensorSpec{.id = kY, .dims = Sizes{}.y()}.make());
  RawDescriptor operation(kForward.operation);
  operation.set(kForward.x, x).set(kForward.w, w).set(kForward.y, y);
  operation.set(kForward.convolution, keep(ConvolutionSpec{}.make())).set(kForward.alpha, 1.0f);
  EXPECT_EQ(operation.finalize().status(), CUDNN_STATUS_BAD_PARAM) << "beta";
}

TEST_F(VendorMisuse, SizesAndStridesBelowOne) {
  EXPECT_EQ((TensorSpec{.dims = Ints{0, 8, 5, 5}}.make().status()), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ((TensorSpec{.strides = Ints{200, 0, 40, 8}}.make().status()), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ((ConvolutionSpec{.strides = Ints{0, 1}}.make().status()), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ((ConvolutionSpec{.dilations = Ints{1, 0}}.make().status()), CUDNN_STATUS_BAD_PARAM);
}

TEST_F(VendorMisuse, NestedDescriptors) {
  RawDescriptor operation(kForward.operation);
  EXPECT_EQ(operation.set(kForward.x, keep(ConvolutionSpec{}.make())).status(),
            CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  const RawDescriptor unfinished(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  RawDescriptor another(kForward.operation);
  EXPECT_EQ(another.set(kForward.x, unfinished).status(), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  RawDescriptor third(kForward.operation);  // created first, or it could get the address of the destroyed one
  RawDescriptor dead = TensorSpec{}.make();
  void* const handle = dead.get();
  dead.destroy();
  EXPECT_EQ(cudnnBackendFinalize(handle), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(third.set(kForward.x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle).status(),
            CUDNN_STATUS_BAD_PARAM);
}

TEST_F(VendorMisuse, TensorDestroyedBeforeItsOperationIsFinalized) {
  RawDescriptor x = TensorSpec{.id = kX, .dims = Sizes{}.x()}.make();
  const RawDescriptor &w = keep(TensorSpec{.id = kW, .dims = Sizes{}.filter()}.make()),
                      &y = keep(TensorSpec{.id = kY, .dims = Sizes{}.y()}.make());
  RawDescriptor operation(kForward.operation);
  operation.set(kForward.x, x).set(kForward.w, w).set(kForward.y, y);
  operation.set(kForward.convolution, keep(ConvolutionSpec{}.make()));
  operation.set(kForward.alpha, 1.0f).set(kForward.beta, 0.0f);
  x.destroy();
  EXPECT_EQ(operation.finalize().status(), CUDNN_STATUS_BAD_PARAM);
}

TEST_F(VendorMisuse, DuplicateIds) {
  const RawDescriptor &x = keep(TensorSpec{.id = kX, .dims = Sizes{}.x()}.make()),
                      &w = keep(TensorSpec{.id = kX, .dims = Sizes{}.filter()}.make()),
                      &y = keep(TensorSpec{.id = kY, .dims = Sizes{}.y()}.make());
  const RawDescriptor& operation = keep(make_operation(kForward, x, w, y, keep(ConvolutionSpec{}.make())));
  EXPECT_EQ(graph_of({&operation}).status(), CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
}

TEST_F(VendorMisuse, VirtualTensors) {
  const RawDescriptor &x = keep(TensorSpec{.id = kX, .dims = Sizes{}.x()}.make()),
                      &w = keep(TensorSpec{.id = kW, .dims = Sizes{}.filter()}.make()),
                      &y = keep(TensorSpec{.id = kY, .dims = Sizes{}.y(), .is_virtual = true}.make()),
                      &out = keep(TensorSpec{.id = 4, .dims = Sizes{}.y()}.make());
  const RawDescriptor& convolve = keep(make_operation(kForward, x, w, y, keep(ConvolutionSpec{}.make())));
  const RawDescriptor& relu =
      keep(make_operation(keep(make_pointwise(CUDNN_POINTWISE_RELU_FWD)), y, nullptr, out));
  EXPECT_EQ(graph_of({&convolve, &relu}).status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(graph_of({&convolve}).status(), CUDNN_STATUS_BAD_PARAM) << "no operation reads it";
  EXPECT_EQ(graph_of({&relu}).status(), CUDNN_STATUS_BAD_PARAM) << "no operation writes it";
  EXPECT_EQ(graph_of({&relu, &convolve}).status(), CUDNN_STATUS_BAD_PARAM)
      << "it is read before it is written";
}

TEST_F(VendorMisuse, TensorsWrittenBySeveralOperations) {
  const RawDescriptor &x = keep(TensorSpec{.id = kX, .dims = Sizes{}.x()}.make()),
                      &w = keep(TensorSpec{.id = kW, .dims = Sizes{}.filter()}.make()),
                      &y = keep(TensorSpec{.id = kY, .dims = Sizes{}.y()}.make());
  const RawDescriptor& convolution = keep(ConvolutionSpec{}.make());
  const RawDescriptor &once = keep(make_operation(kForward, x, w, y, convolution)),
                      &again = keep(make_operation(kForward, x, w, y, convolution)),
                      &in_place =
                          keep(make_operation(keep(make_pointwise(CUDNN_POINTWISE_RELU_FWD)), y, nullptr, y));
  EXPECT_EQ(graph_of({&once, &again}).status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(graph_of({&in_place}).status(), CUDNN_STATUS_BAD_PARAM);
}

TEST_F(VendorMisuse, MismatchedShapes) {
  const RawDescriptor &image = keep(TensorSpec{.id = 1}.make()),
                      &tall = keep(TensorSpec{.id = 2, .dims = Ints{2, 8, 6, 5}}.make()),
                      &short_bias = keep(TensorSpec{.id = 3, .dims = Ints{1, 4, 1, 1}}.make()),
                      &flat =
                          keep(TensorSpec{.id = 4, .dims = Ints{2, 8, 5}, .strides = Ints{40, 5, 1}}.make());
  const RawDescriptor &add = keep(make_pointwise(CUDNN_POINTWISE_ADD)),
                      &relu = keep(make_pointwise(CUDNN_POINTWISE_RELU_FWD));
  EXPECT_EQ(make_operation(relu, image, nullptr, tall).status(), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(make_operation(add, image, &short_bias, keep(TensorSpec{.id = 5}.make())).status(),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(make_operation(add, image, &flat, keep(TensorSpec{.id = 5}.make())).status(),
            CUDNN_STATUS_BAD_PARAM);
  const RawDescriptor &w = keep(TensorSpec{.id = 6, .dims = Ints{16, 8, 3, 3}}.make()),
                      &y = keep(TensorSpec{.id = 7, .dims = Ints{2, 16, 5, 5}}.make());
  EXPECT_EQ(make_operation(kForward, flat, w, y, keep(ConvolutionSpec{}.make())).status(),
            CUDNN_STATUS_BAD_PARAM);
  // Two channel groups and 15 filters.
  const RawDescriptor &half = keep(TensorSpec{.id = 6, .dims = Ints{15, 4, 3, 3}}.make()),
                      &odd = keep(TensorSpec{.id = 7, .dims = Ints{2, 15, 5, 5}}.make());
  EXPECT_EQ(make_operation(kForward, image, half, odd, keep(ConvolutionSpec{}.make())).status(),
            CUDNN_STATUS_BAD_PARAM);
}

TEST_F(VendorMisuse, GraphsThatNoEngineAccepts) {
  const auto status = [&](const RawDescriptor& graph) { return heuristics_of(graph).status(); };
  const auto convolution = [&](const TensorSpec& x, const TensorSpec& w, const TensorSpec& y,
                               const ConvolutionSpec& spec = {}) {
    return status(keep(graph_of({&keep(
        make_operation(kForward, keep(x.make()), keep(w.make()), keep(y.make()), keep(spec.make())))})));
  };
  const TensorSpec x{.id = kX, .dims = Sizes{}.x()}, w{.id = kW, .dims = Sizes{}.filter()},
      y{.id = kY, .dims = Sizes{}.y()}, half_w{.id = kW, .type = CUDNN_DATA_HALF, .dims = Sizes{}.filter()};
  EXPECT_EQ(convolution(x, w, y), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(convolution(x, half_w, y), CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
  EXPECT_EQ(convolution(x, w, y, {.compute = CUDNN_DATA_DOUBLE}), CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
  EXPECT_EQ(convolution(x, w, y, {.mode = CUDNN_CONVOLUTION}), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(convolution(x, {.id = kW, .dims = Ints{16, 4, 3, 3}}, y), CUDNN_STATUS_SUCCESS) << "groups";
  EXPECT_EQ(status(convolution_graph(kForward, {}, CUDNN_DATA_DOUBLE)), CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
  const RawDescriptor& relu =
      keep(make_operation(keep(make_pointwise(CUDNN_POINTWISE_RELU_FWD)), keep(x.make()), nullptr,
                          keep(TensorSpec{.id = kY, .dims = Sizes{}.x()}.make())));
  EXPECT_EQ(status(keep(graph_of({&relu}))), CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
  const RawDescriptor &forward = keep(make_operation(kForward, keep(x.make()), keep(w.make()), keep(y.make()),
                                                     keep(ConvolutionSpec{}.make()))),
                      &backward = keep(
                          make_operation(kBackwardData, keep(TensorSpec{.id = 4, .dims = Sizes{}.x()}.make()),
                                         keep(w.make()), keep(y.make()), keep(ConvolutionSpec{}.make())));
  EXPECT_EQ(status(keep(graph_of({&forward, &backward}))), CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
}

TEST_F(VendorMisuse, EpiloguesThatNoEngineAccepts) {
  set(VendorSettings{.cudnn = {.fuses_f32 = true}});
  const auto status = [&](const FusedSpec& spec) { return heuristics_of(fused_graph({}, spec)).status(); };
  constexpr cudnnStatus_t kNoPattern = CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
  EXPECT_EQ(status({}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(status({.type = CUDNN_DATA_FLOAT}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(status({.type = CUDNN_DATA_FLOAT, .sum_in_memory = true}), kNoPattern);
  EXPECT_EQ(status({.between = CUDNN_DATA_HALF}), kNoPattern);
  EXPECT_EQ(status({.compute = CUDNN_DATA_HALF}), kNoPattern);
  EXPECT_EQ(status({.bias = Ints{1, 1, 1, 1}}), kNoPattern);
  EXPECT_EQ(status({.is_chain = false}), kNoPattern);
  EXPECT_EQ(status({.relu_is_first = true}), kNoPattern);
  EXPECT_EQ(status({.beta = 1}), kNoPattern);
  EXPECT_EQ(status({.output = CUDNN_DATA_FLOAT}), CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
}

TEST_F(VendorMisuse, UnknownTypes) {
  constexpr auto kInt8 = static_cast<cudnnDataType_t>(3);
  EXPECT_EQ(TensorSpec{.type = kInt8}.make().status(), CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
  constexpr auto kMatmul = static_cast<cudnnBackendDescriptorType_t>(18);
  cudnnBackendDescriptor_t made = nullptr;
  EXPECT_EQ(cudnnBackendCreateDescriptor(kMatmul, &made), CUDNN_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, nullptr),
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
}

TEST_F(VendorMisuse, DuplicateKnobs) {
  RawDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR), config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, convolution_graph(kForward, {}));
  engine.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, kKnobs).finalize();
  std::vector<RawDescriptor> knobs;
  for (const std::int64_t value : {1, 2}) {
    knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    knobs.back().set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_KNOB_TYPE_SPLIT_K);
    knobs.back().set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value).finalize();
  }
  config.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, std::vector<const RawDescriptor*>{&knobs[0], &knobs[1]});
  EXPECT_EQ(config.status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(config.finalize().status(), CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
}

TEST_F(VendorMisuse, Pointers) {
  const Sizes s;
  const Numbers<float> x(*gpu_, elements(s.x()) + 4), w(*gpu_, elements(s.filter())),
      y(*gpu_, elements(s.y()));
  const RawDescriptor plan = plain_plan();
  std::vector<float> host(elements(s.x()));
  EXPECT_EQ(execute(plan, ids_, {x.data(), w.data(), y.data()}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(execute(plan, {kX, kW}, {x.data(), w.data()}), CUDNN_STATUS_BAD_PARAM) << "one is missing";
  EXPECT_EQ(execute(plan, {kX, kW, kY, 9}, {x.data(), w.data(), y.data(), y.data()}), CUDNN_STATUS_BAD_PARAM)
      << "an unknown tensor";
  EXPECT_EQ(execute(plan, {kX, kW, kY, kX}, {x.data(), w.data(), y.data(), x.data()}),
            CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES);
  EXPECT_EQ(execute(plan, ids_, {x.data(), nullptr, y.data()}), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(execute(plan, ids_, {x.data() + 1, w.data(), y.data()}),
            CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  EXPECT_EQ(execute(plan, ids_, {x.data() + 4, w.data(), y.data()}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(execute(plan, ids_, {x.data() + 8, w.data(), y.data()}), CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND)
      << "past the end";
  EXPECT_EQ(execute(plan, ids_, {host.data(), w.data(), y.data()}), CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND)
      << "host memory";
  EXPECT_EQ(execute(plan, ids_, {y.data(), w.data(), y.data()}), CUDNN_STATUS_BAD_PARAM)
      << "input and output overlap";
}

TEST_F(VendorMisuse, Workspaces) {
  const Sizes s;
  const auto ones = [&](const Ints& dims) { return std::vector<float>(elements(dims), 1); };
  const Numbers<float> x(*gpu_, ones(s.x())), w(*gpu_, ones(s.filter())), y(*gpu_, elements(s.y()));
  RawDescriptor plan = plan_of(convolution_graph(kForward, s), kKnobs);
  const Numbers<float> enough(*gpu_, std::vector<float>(workspace_of(plan) / sizeof(float), 0));
  const Numbers<char> less(*gpu_, workspace_of(plan) - 1);
  const std::vector<void*> arrays = {x.data(), w.data(), y.data()};
  EXPECT_EQ(execute(plan, ids_, arrays, enough.data()), CUDNN_STATUS_SUCCESS);
  EXPECT_THAT(enough.values(), ::testing::Each(::testing::Gt(0))) << "the whole workspace was used";
  EXPECT_EQ(execute(plan, ids_, arrays, less.data()), CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
  EXPECT_EQ(execute(plan, ids_, arrays), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(execute(plan, ids_, arrays, y.data()), CUDNN_STATUS_BAD_PARAM) << "overlaps the output";
}

TEST_F(VendorMisuse, InvalidPlans) {
  const Sizes s;
  const Numbers<float> x(*gpu_, elements(s.x())), w(*gpu_, elements(s.filter())), y(*gpu_, elements(s.y()));
  const std::vector<void*> arrays = {x.data(), w.data(), y.data()};
  const RawDescriptor unfinished(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  EXPECT_EQ(execute(unfinished, ids_, arrays), CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  EXPECT_EQ(execute(keep(TensorSpec{}.make()), ids_, arrays), CUDNN_STATUS_BAD_PARAM);
  const RawDescriptor plan = plain_plan();
  EXPECT_EQ(cudnnBackendExecute(handle_, plan.get(), plan.get()), CUDNN_STATUS_BAD_PARAM)
      << "not a variant pack";
}

TEST_F(VendorMisuse, Handles) {
  const Sizes s;
  const Numbers<float> x(*gpu_, elements(s.x())), w(*gpu_, elements(s.filter())), y(*gpu_, elements(s.y()));
  const std::vector<void*> arrays = {x.data(), w.data(), y.data()};
  const RawDescriptor& graph = convolution_graph(kForward, {});
  const RawDescriptor plan = plan_of(graph, kPlain);
  Gpu other(1);
  other.stream.make_current();
  EXPECT_EQ(execute(plan, ids_, arrays), CUDNN_STATUS_BAD_PARAM) << "another GPU is current";
  EXPECT_EQ(cudnnSetStream(handle_, other.stream.handle()), CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH);
  cudnnHandle_t second = nullptr;
  ASSERT_EQ(cudnnCreate(&second), CUDNN_STATUS_SUCCESS);
  std::swap(second, handle_);
  EXPECT_EQ(execute(plan, ids_, arrays), CUDNN_STATUS_BAD_PARAM) << "no stream";
  EXPECT_EQ(cudnnSetStream(handle_, other.stream.handle()), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(execute(plan, ids_, arrays), CUDNN_STATUS_BAD_PARAM) << "the plan is for the first GPU";
  EXPECT_EQ(plan_of(graph, kPlain).status(), CUDNN_STATUS_BAD_PARAM) << "the graph is for the first GPU";
  std::swap(second, handle_);
  EXPECT_EQ(cudnnDestroy(second), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(cudnnDestroy(second), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnSetStream(second, other.stream.handle()), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(cudnnSetStream(handle_, nullptr), CUDNN_STATUS_BAD_PARAM) << "there is no stream 0";
}

TEST_F(VendorMisuse, GetAttribute) {
  RawDescriptor heuristics = heuristics_of(convolution_graph(kForward, {}));
  const auto get = [&](const RawDescriptor& into) {
    void* const given = into.get();
    std::int64_t count = 0;
    return cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, const_cast<void**>(&given));
  };
  EXPECT_EQ(get(RawDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR)), CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  const RawDescriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  EXPECT_EQ(get(config), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(get(config), CUDNN_STATUS_BAD_PARAM) << "already filled";
  std::int64_t announced = 0;
  EXPECT_EQ(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &announced, nullptr),
            CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(announced, 40) << "more than the 31 that exist";

  const RawDescriptor& tensor = keep(TensorSpec{}.make());
  std::int64_t count = 0, numbers[8] = {};
  const auto dims = [&](std::int64_t requested, std::int64_t* how_many, void* into) {
    return cudnnBackendGetAttribute(tensor.get(), CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, requested,
                                    how_many, into);
  };
  EXPECT_EQ(dims(0, &count, nullptr), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(count, 4);
  EXPECT_EQ(dims(-1, &count, numbers), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(dims(4, &count, nullptr), CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(dims(0, nullptr, nullptr), CUDNN_STATUS_BAD_PARAM);
  RawDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  EXPECT_EQ(engine.set(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_FFT).status(),
            CUDNN_STATUS_BAD_PARAM)
      << "read-only";
}

}  // namespace
}  // namespace convoy::emulator
