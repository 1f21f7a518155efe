// Tests of the emulated cuDNN's engines: which ones the heuristics list, and what they compute.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <random>

#include "convoy/kernels/base/dtype.h"
#include "tests/cuda_emulator/tests/vendor_convolution_fixture.h"

namespace convoy::emulator {
namespace {

using namespace cudnn_engine;  // NOLINT: its constants
using Floats = std::vector<float>;

template <class T>
struct TypeOf;
template <>
struct TypeOf<float> {
  static constexpr cudnnDataType_t value = CUDNN_DATA_FLOAT;
};
template <>
struct TypeOf<float16> {
  static constexpr cudnnDataType_t value = CUDNN_DATA_HALF;
};
template <>
struct TypeOf<bfloat16> {
  static constexpr cudnnDataType_t value = CUDNN_DATA_BFLOAT16;
};

template <class T>
std::vector<T> converted_to(const std::vector<double>& values) {
  std::vector<T> result;
  for (const double value : values) result.push_back(T(static_cast<float>(value)));
  return result;
}

/// Returns values -1, 0 and 1. Their sums are exact in every type and order.
std::vector<double> small_integers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> values(count);
  for (double& value : values) value = static_cast<double>(random() % 3) - 1;
  return values;
}

std::vector<double> fractions(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> values(count);
  for (double& value : values) value = std::uniform_real_distribution<double>(-1, 1)(random);
  return values;
}

/// Calls f(x, w, y) for each multiplication of a convolution, with the channels-last indices of its operands
/// and sum.
template <class F>
void for_each_gemm(const Sizes& s, const F& f) {
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t oh = 0; oh < s.oh(); ++oh)
      for (std::int64_t ow = 0; ow < s.ow(); ++ow)
        for (std::int64_t r = 0; r < s.r; ++r)
          for (std::int64_t q = 0; q < s.r; ++q) {
            const std::int64_t h = oh * s.stride + r - s.padding, w = ow * s.stride + q - s.padding;
            if (h < 0 || h >= s.h || w < 0 || w >= s.w) continue;
            for (std::int64_t k = 0; k < s.k; ++k)
              for (std::int64_t c = 0; c < s.c; ++c)
                f(static_cast<std::size_t>(((n * s.h + h) * s.w + w) * s.c + c),
                  static_cast<std::size_t>(((k * s.r + r) * s.r + q) * s.c + c),
                  static_cast<std::size_t>(((n * s.oh() + oh) * s.ow() + ow) * s.k + k));
          }
}

template <class T>
class VendorConvolutionOf : public VendorConvolution {
 protected:
  /// Checks all three directions with one engine.
  void compare(const Sizes& s, std::int64_t engine,
               const std::map<cudnnBackendKnobType_t, std::int64_t>& knobs = {}) {
    const auto x = small_integers(elements(s.x()), 1), w = small_integers(elements(s.filter()), 2),
               dy = small_integers(elements(s.y()), 3);
    std::vector<double> y(dy.size()), dx(x.size()), dw(w.size());
    for_each_gemm(s, [&](std::size_t at_x, std::size_t at_w, std::size_t at_y) {
      y[at_y] += x[at_x] * w[at_w];
      dx[at_x] += dy[at_y] * w[at_w];
      dw[at_w] += dy[at_y] * x[at_x];
    });
    const auto device = [&](const std::vector<double>& values) {
      return Numbers<T>(*gpu_, converted_to<T>(values));
    };
    const auto run = [&](const OperationNames& names, auto& gx, auto& gw, auto& gy) {
      RawDescriptor plan = plan_of(convolution_graph(names, s, TypeOf<T>::value), engine, knobs);
      ASSERT_EQ(execute_with_workspace(plan, {1, 2, 3}, gx, gw, gy), CUDNN_STATUS_SUCCESS);
    };
    const auto gx = device(x), gw = device(w), gdy = device(dy);
    const Numbers<T> gy(*gpu_, y.size()), gdx(*gpu_, dx.size()), gdw(*gpu_, dw.size());
    run(kForward, gx, gw, gy);
    run(kBackwardData, gdx, gw, gdy);
    run(kBackwardFilter, gx, gdw, gdy);
    expect_same(gy, y);
    expect_same(gdx, dx);
    expect_same(gdw, dw);
  }

 private:
  static void expect_same(const Numbers<T>& found, const std::vector<double>& expected) {
    std::vector<double> values;
    for (const T value : found.values()) values.push_back(static_cast<double>(static_cast<float>(value)));
    EXPECT_EQ(values, expected);
  }
};

using VendorConvolutionOfTypes = ::testing::Types<float, float16, bfloat16>;
TYPED_TEST_SUITE(VendorConvolutionOf, VendorConvolutionOfTypes);

TYPED_TEST(VendorConvolutionOf, IsRightWithEveryEngine) {
  this->compare({}, kPlain);
  this->compare({}, kNondeterministic);
  this->compare({}, kTensorCore);
  this->compare({}, kKnobs);
  this->compare({}, kKnobs, {{CUDNN_KNOB_TYPE_TILE_SIZE, 1}, {CUDNN_KNOB_TYPE_SPLIT_K, 4}});
  set(VendorSettings{.cudnn = {.greedy_workspace = 1000}});
  this->compare({}, kGreedy);
}

TYPED_TEST(VendorConvolutionOf, IsRightForAnyShape) {
  this->compare({.h = 7, .w = 6, .c = 3, .k = 5, .stride = 2}, kPlain);
  this->compare({.c = 1, .k = 1, .r = 1, .padding = 0}, kPlain);
  this->compare({.h = 6, .w = 7, .r = 1, .stride = 2, .padding = 0}, kKnobs);
  this->compare({.n = 1, .h = 5, .w = 5, .r = 5, .padding = 0}, kKnobs);
}

TEST_F(VendorConvolution, ListsEnginesOfEveryKind) {
  const std::map<int, std::int64_t> first{{CUDNN_KNOB_TYPE_TILE_SIZE, 0}, {CUDNN_KNOB_TYPE_SPLIT_K, 2}},
      second{{CUDNN_KNOB_TYPE_TILE_SIZE, 1}, {CUDNN_KNOB_TYPE_SPLIT_K, 4}};
  const std::vector<Listed> others = {{kNondeterministic, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, {}},
                                      {kKnobs, {}, first},
                                      {kKnobs, {}, second},
                                      {kGreedy, {}, {}},
                                      {kRefused, {}, {}}};
  // The others, without those of the engine that most are of, and without further choices of kKnobs.
  const auto others_of = [&](const RawDescriptor& graph) {
    std::vector<Listed> all = listed(graph);
    std::erase_if(all, [](const Listed& one) { return one.engine == kTensorCore; });
    all.resize(others.size());
    return all;
  };
  for (const RawDescriptor* graph :
       {&convolution_graph(kForward, {}), &convolution_graph(kForward, {}, CUDNN_DATA_HALF)}) {
    EXPECT_EQ(others_of(*graph), others);
    EXPECT_EQ(listed(*graph).front(),
              (Listed{kTensorCore, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {{CUDNN_KNOB_TYPE_TILE_SIZE, 0}}}));
  }
  for (const RawDescriptor* graph :  // three channels do not fill a vector; a misaligned tensor
       {&convolution_graph(kForward, {.c = 3}), &convolution_graph(kForward, {}, CUDNN_DATA_FLOAT, 4)})
    EXPECT_EQ(listed(*graph).front(), others.front());
  EXPECT_EQ(listed(convolution_graph(kForward, {}), CUDNN_HEUR_MODE_FALLBACK),
            (std::vector<Listed>{{kPlain, {}, {}}}));
  set(VendorSettings{.cudnn = {.max_results = 2}});
  EXPECT_EQ(listed(convolution_graph(kForward, {})).size(), 2u);
}

// The counts of the real library (9.19, sm_90) for 128 images of 32x32x64 in bf16 and 64 filters 3x3: most
// configurations are of one engine, and so are the first ones.
TEST_F(VendorConvolution, ListsManyConfigurationsOfOneEngine) {
  struct Expected {
    const OperationNames& names;
    std::ptrdiff_t all, first, of_engine;
  };
  for (const auto& [names, all, first, of_engine] :
       {Expected{kForward, 31, 14, 23}, {kBackwardData, 38, 8, 16}, {kBackwardFilter, 40, 7, 25}}) {
    const std::vector<Listed> found = listed(convolution_graph(names, {}, CUDNN_DATA_BFLOAT16));
    const auto is_tensor_core = [](const Listed& one) { return one.engine == kTensorCore; };
    EXPECT_EQ(std::ssize(found), all);
    EXPECT_EQ(std::find_if_not(found.begin(), found.end(), is_tensor_core) - found.begin(), first);
    EXPECT_EQ(std::count_if(found.begin(), found.end(), is_tensor_core), of_engine);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_EQ(std::count(found.begin(), found.end(), found[i]), 1) << "configuration " << i;
  }
}

TEST_F(VendorConvolution, HasBehaviorNotes) {
  const auto notes = [&](std::int64_t index) {
    RawDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, convolution_graph(kForward, {}))
        .set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, index)
        .finalize();
    return engine.get<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE);
  };
  EXPECT_THAT(notes(kPlain), ::testing::IsEmpty());
  EXPECT_THAT(notes(kTensorCore), ::testing::ElementsAre(CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API));
  EXPECT_THAT(notes(kKnobs), ::testing::ElementsAre(CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION,
                                                    CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API));
}

TEST_F(VendorConvolution, FinalizingAPlanTakesTimeIfSet) {
  using Clock = std::chrono::steady_clock;
  const RawDescriptor& graph = convolution_graph(kForward, {});
  const auto time_of = [&](std::int64_t engine) {
    const Clock::time_point begin = Clock::now();
    EXPECT_EQ(plan_of(graph, engine).status(), CUDNN_STATUS_SUCCESS);
    return Clock::now() - begin;
  };
  set(VendorSettings{.cudnn = {.finalize_ms = {{kKnobs, 300}}}});
  EXPECT_GE(time_of(kKnobs), std::chrono::milliseconds(300));
  EXPECT_LT(time_of(kPlain), std::chrono::milliseconds(300));
}

TEST_F(VendorConvolution, FailsToFinalizeOrToExecuteIfSet) {
  const RawDescriptor& graph = convolution_graph(kForward, {});
  const Numbers<float> x(*gpu_, elements(Sizes{}.x())), w(*gpu_, elements(Sizes{}.filter())),
      y(*gpu_, elements(Sizes{}.y()));
  const auto run = [&](std::int64_t engine) {
    RawDescriptor plan = plan_of(graph, engine);
    return plan.status() == CUDNN_STATUS_SUCCESS ? execute_with_workspace(plan, {1, 2, 3}, x, w, y)
                                                 : plan.status();
  };
  const VendorSettings settings{
      .cudnn = {.refused = {{kKnobs, CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER}},
                .failing = {{kPlain, CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING}}}};
  set(settings);
  EXPECT_EQ(plan_of(graph, kKnobs).status(), CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
  EXPECT_EQ(plan_of(graph, kPlain).status(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(run(kPlain), CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING);
  EXPECT_EQ(run(kTensorCore), CUDNN_STATUS_SUCCESS);
  // A failing execution makes a capture useless.
  cudaStreamCaptureStatus status{};
  ASSERT_EQ(cudaStreamBeginCapture(gpu_->stream.handle(), cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(run(kPlain), CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING);
  ASSERT_EQ(cudaStreamIsCapturing(gpu_->stream.handle(), &status), cudaSuccess);
  EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
  cudaGraph_t captured = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(gpu_->stream.handle(), &captured), cudaErrorStreamCaptureInvalidated);
}

TEST_F(VendorConvolution, HasUnsupportedPlansAndPlansWithHugeWorkspace) {
  const RawDescriptor& graph = convolution_graph(kForward, {});
  EXPECT_EQ(plan_of(graph, kRefused).status(), CUDNN_STATUS_NOT_SUPPORTED);
  RawDescriptor greedy = plan_of(graph, kGreedy),
                split = plan_of(graph, kKnobs, {{CUDNN_KNOB_TYPE_SPLIT_K, 4}});
  EXPECT_EQ(workspace_of(greedy), VendorSettings{}.cudnn.greedy_workspace);
  EXPECT_EQ(workspace_of(split), elements(Sizes{}.y()) * 4 * sizeof(float));
  plan_of(graph, kCount);
  EXPECT_NE(refused_, CUDNN_STATUS_SUCCESS) << "unknown engine";
  plan_of(graph, kKnobs, {{CUDNN_KNOB_TYPE_SPLIT_K, 3}});
  EXPECT_EQ(refused_, CUDNN_STATUS_NOT_SUPPORTED) << "unknown value";
  plan_of(graph, kPlain, {{CUDNN_KNOB_TYPE_SPLIT_K, 1}});
  EXPECT_EQ(refused_, CUDNN_STATUS_NOT_SUPPORTED) << "unknown knob";
}

TEST_F(VendorConvolution, AppliesAlphaAndBeta) {
  const Sizes s{.n = 1, .h = 1, .w = 1, .c = 1, .k = 1, .r = 1, .padding = 0};
  const Numbers<float> x(*gpu_, Floats{3.0f}), w(*gpu_, Floats{5.0f}), y(*gpu_, Floats{7.0f});
  RawDescriptor plan = plan_of(convolution_graph(kForward, s, CUDNN_DATA_FLOAT, 4, 2.0f, 10.0f), kPlain);
  EXPECT_EQ(execute_with_workspace(plan, {1, 2, 3}, x, w, y), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(y.values(), Floats{100});
}

TEST_F(VendorConvolution, SupportsAnyStrides) {
  const Sizes s{.n = 1, .h = 2, .w = 2, .c = 2, .k = 1, .r = 1, .padding = 0};
  const RawDescriptor& x = keep(TensorSpec{.id = 1, .dims = s.x(), .strides = Ints{8, 4, 2, 1}}.make());
  const RawDescriptor &w = keep(TensorSpec{.id = 2, .dims = s.filter()}.make()),
                      &y = keep(TensorSpec{.id = 3, .dims = s.y(), .strides = Ints{8, 8, 4, 2}}.make());
  const ConvolutionSpec spec{.padding = Ints{0, 0}};
  const RawDescriptor& graph = keep(graph_of({&keep(make_operation(kForward, x, w, y, keep(spec.make())))}));
  const Numbers<float> gx(*gpu_, Floats{1.0f, 2, 3, 4, 10, 20, 30, 40}), gw(*gpu_, Floats{1.0f, 1});
  const Numbers<float> gy(*gpu_, Floats(7, -1));
  RawDescriptor plan = plan_of(graph, kPlain);
  EXPECT_EQ(execute_with_workspace(plan, {1, 2, 3}, gx, gw, gy), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(gy.values(), (Floats{11, -1, 22, -1, 33, -1, 44}));
  plan_of(graph, kKnobs);
  EXPECT_NE(refused_, CUDNN_STATUS_SUCCESS) << "which needs channels-last";
}

/// Returns outputs whose last bits depend on the order of summation.
class VendorOrder : public VendorConvolution {
 protected:
  std::vector<float> outputs(std::int64_t engine,
                             const std::map<cudnnBackendKnobType_t, std::int64_t>& knobs = {}) {
    const Sizes s;
    const Numbers<float> x(*gpu_, converted_to<float>(fractions(elements(s.x()), 1))),
        w(*gpu_, converted_to<float>(fractions(elements(s.filter()), 2))), y(*gpu_, elements(s.y()));
    RawDescriptor plan = plan_of(convolution_graph(kForward, s), engine, knobs);
    EXPECT_EQ(execute_with_workspace(plan, {1, 2, 3}, x, w, y), CUDNN_STATUS_SUCCESS);
    return y.values();
  }
};

TEST_F(VendorOrder, DependsOnTheEngine) {
  const std::vector<float> plain = outputs(kPlain);
  EXPECT_EQ(outputs(kPlain), plain);
  EXPECT_EQ(outputs(kKnobs), plain) << "with default knobs";
  EXPECT_NE(outputs(kKnobs, {{CUDNN_KNOB_TYPE_TILE_SIZE, 1}}), plain);
  EXPECT_NE(outputs(kKnobs, {{CUDNN_KNOB_TYPE_SPLIT_K, 2}}), plain);
  EXPECT_NE(outputs(kKnobs, {{CUDNN_KNOB_TYPE_SPLIT_K, 2}}), outputs(kKnobs, {{CUDNN_KNOB_TYPE_SPLIT_K, 4}}));
  EXPECT_NE(outputs(kTensorCore), plain);
  const std::vector<float> once = outputs(kNondeterministic);
  EXPECT_NE(outputs(kNondeterministic), once);
}

TEST_F(VendorConvolution, TensorCoresRoundFactorsOfF32) {
  const Sizes s{.n = 1, .h = 1, .w = 1, .c = 4, .k = 4, .r = 1, .padding = 0};
  const float kept = 1 + 0x1p-10f, lost = 1 + 0x1p-12f, tie = 1 + 0x1p-11f;
  const auto output = [&](float factor, std::int64_t engine) {
    const Numbers<float> x(*gpu_, Floats{factor, 0, 0, 0}), w(*gpu_, Floats(16, 1)), y(*gpu_, 4);
    RawDescriptor plan = plan_of(convolution_graph(kForward, s), engine);
    EXPECT_EQ(execute_with_workspace(plan, {1, 2, 3}, x, w, y), CUDNN_STATUS_SUCCESS);
    return y.values()[0];
  };
  EXPECT_EQ(output(lost, kPlain), lost);
  EXPECT_EQ(output(lost, kTensorCore), 1);
  EXPECT_EQ(output(kept, kTensorCore), kept);
  EXPECT_EQ(output(tie, kTensorCore), kept);
  EXPECT_EQ(output(std::numeric_limits<float>::infinity(), kTensorCore),
            std::numeric_limits<float>::infinity());
}

TEST_F(VendorConvolution, FusesBiasAndReluIfEnabled) {
  const auto configurations = [&](cudnnDataType_t type) {
    RawDescriptor heuristics = heuristics_of(fused_graph({}, {.type = type}));
    return heuristics.status() == CUDNN_STATUS_SUCCESS
               ? heuristics.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR).size()
               : 0;
  };
  EXPECT_EQ(configurations(CUDNN_DATA_HALF), 5u) << "the configurations of kKnobs";
  EXPECT_EQ(configurations(CUDNN_DATA_FLOAT), 0u);
  set(VendorSettings{.cudnn = {.fuses_half = false, .fuses_f32 = true}});
  EXPECT_EQ(configurations(CUDNN_DATA_HALF), 0u);
  EXPECT_EQ(configurations(CUDNN_DATA_FLOAT), 5u);
  EXPECT_EQ(heuristics_of(fused_graph({}, {.type = CUDNN_DATA_FLOAT}), CUDNN_HEUR_MODE_FALLBACK).status(),
            CUDNN_STATUS_NOT_SUPPORTED);
}

TEST_F(VendorConvolution, RoundsFusedResultOnce) {
  const Sizes s{.n = 1, .h = 3, .w = 3, .c = 1, .k = 2, .r = 3};
  // 1 + 2^-11 is halfway between two f16 values. With the bias of 2^-12, the sum is above that.
  std::vector<float16> filter(18, float16(0.0f));
  filter[4] = float16(1.0f), filter[5] = float16(0x1p-11f), filter[13] = float16(-1.0f);
  const Numbers<float16> x(*gpu_, std::vector<float16>(9, float16(1.0f))), w(*gpu_, filter), y(*gpu_, 18);
  const Numbers<float16> bias(*gpu_, std::vector<float16>{float16(0x1p-12f), float16(0.5f)});
  RawDescriptor plan = plan_of(fused_graph(s, {}), kKnobs);
  EXPECT_EQ(execute_with_workspace(plan, {1, 2, 3, 4}, x, w, y, bias), CUDNN_STATUS_SUCCESS);
  const std::vector<float16> values = y.values();
  EXPECT_EQ(static_cast<float>(values[0]), 1 + 0x1p-10f);
  EXPECT_EQ(static_cast<float>(values[1]), 0) << "-1/2, clipped by the ReLU";
}

TEST_F(VendorConvolution, RunsInStreamOrder) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const ScopedSettings settings(with(Streams::random, seed));
    const Sizes s{.n = 1, .h = 1, .w = 1, .c = 1, .k = 1, .r = 1, .padding = 0};
    const Numbers<float> x(*gpu_, Floats{3.0f}), w(*gpu_, Floats{5.0f}), y(*gpu_, Floats{0.0f});
    {
      RawDescriptor plan = plan_of(convolution_graph(kForward, s, CUDNN_DATA_FLOAT, 4), kPlain);
      reset_vendor_counts();
      EXPECT_EQ(execute(plan, {1, 2, 3}, {x.data(), w.data(), y.data()}), CUDNN_STATUS_SUCCESS);
    }  // the descriptors are destroyed before it runs
    parts_.clear();
    EXPECT_EQ(y.values(), Floats{15});
    EXPECT_EQ(vendor_counts().convolutions, (std::map<std::int64_t, int>{{kPlain, 1}}));
  }
}

TEST_F(VendorConvolution, HasTheSimulatedTime) {
  const Numbers<float> x(*gpu_, elements(Sizes{}.x())), w(*gpu_, elements(Sizes{}.filter())),
      y(*gpu_, elements(Sizes{}.y()));
  const auto time_of = [&](std::int64_t engine) {
    RawDescriptor plan = plan_of(convolution_graph(kForward, {}), engine);
    CudaEvent begin(0, EventTiming::on), end(0, EventTiming::on);
    gpu_->stream.record(begin);
    EXPECT_EQ(execute_with_workspace(plan, {1, 2, 3}, x, w, y), CUDNN_STATUS_SUCCESS);
    gpu_->stream.record(end);
    return elapsed_ms(begin, end);
  };
  // The overhead of the host is far below the differences between engines.
  constexpr double kSlack = 90;
  EXPECT_NEAR(time_of(kKnobs), 200, kSlack);
  EXPECT_NEAR(time_of(kPlain), 600, kSlack);
  set(VendorSettings{.cudnn = {.execution_ms = {{kPlain, 5000}}}});
  EXPECT_NEAR(time_of(kPlain), 5000, kSlack);
}

TEST_F(VendorConvolution, CanBeCapturedInAGraph) {
  const Sizes s{.n = 1, .h = 1, .w = 1, .c = 1, .k = 1, .r = 1, .padding = 0};
  const Numbers<float> x(*gpu_, Floats{3.0f}), w(*gpu_, Floats{5.0f}), y(*gpu_, Floats{0.0f});
  // Each replay adds 15.
  RawDescriptor plan = plan_of(convolution_graph(kForward, s, CUDNN_DATA_FLOAT, 4, 1, 1), kPlain);
  const cudaStream_t stream = gpu_->stream.handle();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT_EQ(execute(plan, {1, 2, 3}, {x.data(), w.data(), y.data()}), CUDNN_STATUS_SUCCESS);
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  EXPECT_TRUE(vendor_counts().convolutions.empty()) << "nothing has run yet";
  CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  plan.destroy();
  for (int replay = 0; replay < 3; ++replay) CUDA_CHECK(cudaGraphLaunch(executable, stream));
  EXPECT_EQ(y.values(), Floats{45});
  EXPECT_EQ(vendor_counts().convolutions[kPlain], 3);
  CUDA_CHECK(cudaGraphExecDestroy(executable));
  CUDA_CHECK(cudaGraphDestroy(graph));
}

TEST_F(VendorConvolution, FailsInInvalidCaptureAndHandleCreationFailsInCapture) {
  const Numbers<float> array(*gpu_, 4096);
  RawDescriptor plan = plan_of(convolution_graph(kForward, {}), kPlain);
  const cudaStream_t stream = gpu_->stream.handle();
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cudnnHandle_t other = nullptr;
  EXPECT_EQ(cudnnCreate(&other), CUDNN_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(execute(plan, {1, 2, 3}, {array.data(), array.data() + 1024, array.data() + 3072}),
            CUDNN_STATUS_EXECUTION_FAILED_CUDART);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
}

TEST_F(VendorConvolution, FollowsTheSettings) {
  const Numbers<float> x(*gpu_, elements(Sizes{}.x())), w(*gpu_, elements(Sizes{}.filter())),
      y(*gpu_, elements(Sizes{}.y()));
  const ScopedVendorSettings settings({.cudnn = {.version = 91500,
                                                 .refused = {{kKnobs, CUDNN_STATUS_NOT_SUPPORTED}},
                                                 .failing = {{kPlain, CUDNN_STATUS_EXECUTION_FAILED}}}});
  EXPECT_EQ(cudnnGetVersion(), 91500u);
  EXPECT_EQ(plan_of(convolution_graph(kForward, {}), kKnobs).status(), CUDNN_STATUS_NOT_SUPPORTED);
  RawDescriptor plan = plan_of(convolution_graph(kForward, {}), kPlain);
  EXPECT_EQ(execute_with_workspace(plan, {1, 2, 3}, x, w, y), CUDNN_STATUS_EXECUTION_FAILED);
  EXPECT_TRUE(vendor_counts().convolutions.empty());
}

}  // namespace
}  // namespace convoy::emulator
