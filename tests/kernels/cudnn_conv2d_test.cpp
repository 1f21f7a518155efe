// Which engine of cuDNN computes a convolution: under the emulator, whose engines, notes and times are known
// (tests/cuda_emulator/vendor.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/conv2d.h"
#include "kernels/cuda/cudnn_conv2d_graph.h"
#include "kernels/cuda/cudnn_plan.h"
#include "kernels/cuda/lru_cache.h"
#include "kernels/runtime/library_versions.h"
#include "kernels/runtime/work_graph.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/vendor.h"
#include "tests/kernels/conv2d_cases.h"
#include "tests/kernels/device_array.h"
#include "tests/support/errors.h"
#include "tests/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using ::testing::Contains;
using testing::ConvCase;
using testing::DeviceArray;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using ::testing::Optional;
using ::testing::Pair;
using ::testing::StartsWith;
namespace engine = emulator::cudnn_engine;

constexpr ConvCase kBody{2, 6, 6, 16, 16, 3, 3, 1, 1};  // channels in whole vectors, of f32 and of halves
constexpr std::string_view kForward = "conv2d forward f32 n2 6x6x16 k16 3x3 s1 p1";
constexpr std::string_view kForwardHalf = "conv2d forward bf16 n2 6x6x16 k16 3x3 s1 p1";
// The knobs' first choice, with partial sums of two parts of y in f32.
constexpr std::string_view kKnobs = "engine 11 knobs 0=2 2=0 workspace 9216";

/// How often each engine ran.
std::map<std::int64_t, int> ran() {
  auto counts = emulator::vendor_counts().convolutions;
  std::erase_if(counts, [](const auto& count) { return count.second == 0; });
  emulator::reset_vendor_counts();
  return counts;
}

/// A convolution on a GPU of its own.
template <class T>
struct Convolution {
  explicit Convolution(const CudaOptions& options = {}) : gpu(Device::cuda(0, options)) {}

  void forward(bool with_bias = false, bool relu = false) {
    const Conv2dOptions how{.stride = kBody.stride, .padding = kBody.padding, .relu = relu};
    on(gpu.stream(), [&](auto& stream) {
      conv2d_forward(stream, x.view(), filter.view(), with_bias ? ConstView(bias.view()) : ConstView(),
                     y.view(), how);
    });
    gpu.synchronize();
  }
  void store(std::string_view key, std::string_view value) {
    gpu.choices().insert(std::string(key), std::string(value));
  }

  Device gpu;
  DeviceArray<T> x{gpu, Array<T>::random(kBody.x(), 1)};
  DeviceArray<T> filter{gpu, Array<T>::random(kBody.filter(), 2)};
  DeviceArray<T> bias{gpu, Array<T>::random({kBody.o}, 3)};
  DeviceArray<T> y{gpu, kBody.y()};
};

class CudnnConv2d : public testing::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    emulator::reset_vendor_counts();
  }
  /// The emulator's cuDNN, changed for as long as the result lives.
  template <class F>
  static std::unique_ptr<emulator::ScopedVendorSettings> with(const F& change) {
    emulator::VendorSettings settings = emulator::vendor_settings();
    change(settings.cudnn);
    return std::make_unique<emulator::ScopedVendorSettings>(settings);
  }
};

TEST_F(CudnnConv2d, ProblemsHaveReadableKeys) {
  Conv2dProblem problem{
      .direction = Conv2dDirection::forward,
      .dtype = DType::bf16,
      .sizes = ConvSizes({128, 32, 24, 3}, {64, 7, 5, 3}, {128, 16, 12, 64}, {.stride = 2, .padding = 3}),
      .bias = true,
      .relu = true,
      .alignment = 16};
  EXPECT_EQ(problem.text(), "conv2d forward bf16 n128 32x24x3 k64 7x5 s2 p3 bias relu");
  problem = problem.without_epilogue();
  problem.direction = Conv2dDirection::backward_filter;
  problem.alignment = 4;
  EXPECT_EQ(problem.text(), "conv2d backward filter bf16 n128 32x24x3 k64 7x5 s2 p3 aligned 4");
  problem.direction = Conv2dDirection::backward_data;
  EXPECT_THAT(problem.text(), StartsWith("conv2d backward data bf16 "));
}

TEST_F(CudnnConv2d, NotesDecideWhatMayCompute) {
  const auto allowed = [](const EngineRules& rules) {
    std::vector<int> notes;
    for (int note = 0; note < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; ++note) {
      const auto named = static_cast<cudnnBackendNumericalNote_t>(note);
      if (rules.allow(std::span(&named, 1))) notes.push_back(note);
    }
    return notes;
  };
  // 0 tensor core, 3 FFT, 4 nondeterministic, 5 to 7 Winograd and its tiles up to 6x6, 9 strict NaN
  EXPECT_THAT(allowed({.dtype = DType::f32}), ElementsAre(3, 4, 5, 6, 7, 9));
  EXPECT_THAT(allowed({.dtype = DType::f32, .tf32 = true}), ElementsAre(0, 3, 4, 5, 6, 7, 9));
  EXPECT_THAT(allowed({.dtype = DType::f32, .deterministic = true}), ElementsAre(3, 5, 6, 7, 9));
  for (const DType half : {DType::f16, DType::bf16}) {
    EXPECT_THAT(allowed({.dtype = half}), ElementsAre(0, 4, 9));
    EXPECT_THAT(allowed({.dtype = half, .deterministic = true}), ElementsAre(0, 9));
  }
  EXPECT_TRUE(EngineRules{}.allow({}));
}

TEST_F(CudnnConv2d, F32IsRoundedOnlyOnRequest) {
  Convolution<float> strict, rounded({.tf32 = true});
  strict.gpu.set_may_time(false);
  rounded.gpu.set_may_time(false);
  strict.forward();
  EXPECT_THAT(ran(), ElementsAre(Pair(engine::kNondeterministic, 1)));
  rounded.forward();
  EXPECT_THAT(ran(), ElementsAre(Pair(engine::kTensorCore, 1)));

  rounded.gpu.set_may_time(true);
  rounded.forward();
  EXPECT_EQ(rounded.gpu.choices().entries().front().first, std::string(kForward) + " tf32");
}

TEST_F(CudnnConv2d, DeterministicStreamsTakeTheFirstThatRepeatsItself) {
  Convolution<float> a({.deterministic = true});
  a.gpu.set_may_time(true);
  a.store(kForward, "engine 0 workspace 0");  // timed by somebody
  a.forward();
  EXPECT_THAT(ran(), ElementsAre(Pair(engine::kKnobs, 1)));
}

TEST_F(CudnnConv2d, TheFastestIsStoredAndUsed) {
  Convolution<float> a;
  a.forward();
  ran();
  EXPECT_THAT(a.gpu.choices().entries(), ElementsAre(Pair(kForward, StartsWith("engine 11 knobs "))));
  a.forward();
  EXPECT_THAT(ran(), ElementsAre(Pair(engine::kKnobs, 1)));

  const auto small = with([](auto& cudnn) { cudnn.greedy_workspace = 1 << 20; });
  Convolution<float> b;
  b.forward();
  EXPECT_THAT(b.gpu.choices().entries(), ElementsAre(Pair(kForward, "engine 5 workspace 1048576")));
}

TEST_F(CudnnConv2d, WhatIsTimedLastLeavesNothingBehind) {
  const auto first_is_fastest = with([](auto& cudnn) {
    cudnn.greedy_workspace = 1 << 20;  // of those that finalize, it is the last
    cudnn.execution_ms[engine::kTensorCore] = 50;
  });
  Convolution<float> timed({.tf32 = true}), fastest({.tf32 = true}), last({.tf32 = true});
  const std::string key = std::string(kForward) + " tf32";
  timed.forward();
  EXPECT_THAT(timed.gpu.choices().find(key), Optional(std::string("engine 7 workspace 0")));
  EXPECT_THAT(ran(), Contains(Pair(engine::kGreedy, ::testing::Gt(1))));
  fastest.store(key, "engine 7 workspace 0");
  fastest.forward();
  last.store(key, "engine 5 workspace 1048576");
  last.forward();
  testing::expect_same_bits(timed.y.values(), fastest.y.values());
  EXPECT_NE(std::memcmp(last.y.values().begin(), fastest.y.values().begin(), 4 * last.y.values().size()), 0);
}

TEST_F(CudnnConv2d, AFirstGuessIsNotStored) {
  Convolution<float> a;
  a.gpu.set_may_time(false);
  a.forward();
  a.forward();
  EXPECT_THAT(ran(), ElementsAre(Pair(engine::kNondeterministic, 2)));
  EXPECT_EQ(a.gpu.choices().size(), 0u);
  a.gpu.set_may_time(true);
  a.forward();
  EXPECT_EQ(a.gpu.choices().size(), 1u);
}

TEST_F(CudnnConv2d, AStoredChoiceIsTakenUp) {
  Convolution<float> a;
  a.store(kForward, "engine 0 workspace 0");
  a.forward();
  EXPECT_THAT(ran(), ElementsAre(Pair(engine::kPlain, 1)));
  Convolution<float> b;
  b.store(kForward, "engine 11 knobs 0=4 2=1 workspace 18432");
  b.forward();
  EXPECT_THAT(ran(), ElementsAre(Pair(engine::kKnobs, 1)));
}

TEST_F(CudnnConv2d, AChoiceThatIsStoredLaterReplacesAFirstGuess) {
  Convolution<float> a;
  a.gpu.set_may_time(false);
  a.forward();
  a.store(kForward, "engine 0 workspace 0");
  ran();
  a.forward();
  EXPECT_THAT(ran(), ElementsAre(Pair(engine::kPlain, 1)));
}

TEST_F(CudnnConv2d, AStoredChoiceThatIsNoneIsIgnored) {
  for (const std::string_view value :
       {"", "separate", "engine", "engine x workspace 0", "engine 0", "engine 0 workspace",
        "engine 0 workspace 0 0", "engine 0 workspace 1", "engine 2 workspace 0", "engine 4 workspace 0",
        "engine 12 workspace 0", "engine -1 workspace 0", "engine 0 knobs 0=2 workspace 0",
        "engine 11 knobs 0=3 workspace 9216", "engine 11 knobs 0=2 0=2 workspace 9216",
        "engine 11 knobs 44=2 workspace 9216", "engine 11 knobs workspace",
        "engine 11 knobs 0 workspace 9216", "engine 7 workspace 0"}) {
    SCOPED_TRACE(value);
    Convolution<float> a;
    a.gpu.set_may_time(false);
    a.store(kForward, value);
    a.forward();
    EXPECT_THAT(ran(), ElementsAre(Pair(engine::kNondeterministic, 1)));
  }
}

TEST_F(CudnnConv2d, LessWorkspaceWhereThereIsNoMemoryForMore) {
  const auto greedy = with([](auto& cudnn) { cudnn.greedy_workspace = 8 << 20; });
  const std::string choice = "engine 5 workspace 8388608";
  Convolution<float> a;
  a.store(kForward, choice);
  {
    emulator::Settings small = emulator::settings();
    small.memory_bytes = 4 << 20;
    const emulator::ScopedSettings settings(small);
    a.forward();
    EXPECT_THAT(ran(), ElementsAre(Pair(engine::kNondeterministic, 1)));
  }
  a.forward();  // does not try again: that costs all cached memory
  EXPECT_THAT(ran(), ElementsAre(Pair(engine::kNondeterministic, 1)));
  EXPECT_THAT(a.gpu.choices().find(kForward), Optional(choice));  // another run may have the memory

  Convolution<float> b;
  b.store(kForward, choice);
  b.forward();
  EXPECT_THAT(ran(), ElementsAre(Pair(engine::kGreedy, 1)));
}

TEST_F(CudnnConv2d, NoMemoryForAnyWorkspaceSaysWhatIsMissing) {
  const auto greedy = with([](auto& cudnn) {
    cudnn.refused = {engine::kPlain, engine::kRefused, engine::kNondeterministic, engine::kKnobs};
  });
  for (const bool may_time : {false, true}) {
    Convolution<float> a;
    a.gpu.set_may_time(may_time);
    EXPECT_THAT(message_of<DeviceError>([&] { a.forward(); }), HasSubstr("64.00 GiB"));
    EXPECT_EQ(a.gpu.choices().size(), 0u);
  }
}

TEST_F(CudnnConv2d, FallbackHeuristicsWhereTheBestGuessesDoNotFinalize) {
  const auto plain = with([](auto& cudnn) {
    cudnn.refused = {engine::kRefused, engine::kNondeterministic, engine::kGreedy, engine::kKnobs};
  });
  Convolution<float> a;
  a.forward();
  EXPECT_THAT(a.gpu.choices().entries(), ElementsAre(Pair(kForward, "engine 0 workspace 0")));
}

TEST_F(CudnnConv2d, NoEngineIsAnErrorThatNamesTheConvolution) {
  const auto none = with([](auto& cudnn) {
    for (std::int64_t index = 0; index < engine::kCount; ++index) cudnn.refused.insert(index);
  });
  for (const bool may_time : {false, true}) {
    Convolution<bfloat16> a;
    a.gpu.set_may_time(may_time);
    const std::string message = message_of<DeviceError>([&] { a.forward(true, true); });
    EXPECT_THAT(message, StartsWith("no engine of " + cudnn_version_text() + " computes " +
                                    std::string(kForwardHalf) + " on cuda:0: CUDNN_STATUS_NOT_SUPPORTED"));
  }
}

TEST_F(CudnnConv2d, AnEngineThatDoesNotRunIsPassedOver) {
  const auto failing = with([](auto& cudnn) { cudnn.failing = {engine::kKnobs}; });
  Convolution<float> a;
  a.forward();
  EXPECT_THAT(a.gpu.choices().entries(), ElementsAre(Pair(kForward, "engine 3 workspace 0")));

  Convolution<float> chosen;
  chosen.store(kForward, kKnobs);
  const std::string message = message_of<DeviceError>([&] { chosen.forward(); });
  EXPECT_THAT(message, HasSubstr("cudnnBackendExecute"));
  EXPECT_THAT(message, HasSubstr("CUDNN_STATUS_EXECUTION_FAILED"));
  EXPECT_THAT(message, HasSubstr("cudnn_plan.cpp:"));
}

// Kernels of our own show where nothing was fused.
TEST_F(CudnnConv2d, BiasAndReluAreFusedWhereAnEngineDoes) {
  Convolution<bfloat16> half;
  half.gpu.set_may_time(false);
  std::uint64_t before = emulator::launches();
  half.forward(true, true);
  EXPECT_EQ(emulator::launches() - before, 0u);
  EXPECT_THAT(ran(), ElementsAre(Pair(engine::kKnobs, 1)));

  Convolution<float> single;
  single.gpu.set_may_time(false);
  before = emulator::launches();
  single.forward(true, true);
  EXPECT_EQ(emulator::launches() - before, 1u);
  EXPECT_THAT(ran(), ElementsAre(Pair(engine::kNondeterministic, 1)));
}

TEST_F(CudnnConv2d, WhetherToFuseIsTimedAndStored) {
  Convolution<bfloat16> half;
  half.forward(true, true);
  EXPECT_THAT(half.gpu.choices().find(std::string(kForwardHalf) + " bias relu"),
              Optional(StartsWith("engine 11 knobs ")));
  Convolution<float> single;
  single.forward(true, false);
  EXPECT_THAT(single.gpu.choices().find(std::string(kForward) + " bias"), Optional(std::string("separate")));
  EXPECT_THAT(single.gpu.choices().find(kForward), Optional(StartsWith("engine 11 knobs ")));

  Convolution<bfloat16> apart;
  apart.store(std::string(kForwardHalf) + " bias relu", "separate");
  apart.gpu.set_may_time(false);
  const std::uint64_t before = emulator::launches();
  apart.forward(true, true);
  EXPECT_EQ(emulator::launches() - before, 1u);
}

TEST_F(CudnnConv2d, RecordedWorkIsNeitherTimedNorStored) {
  Convolution<float> a;
  {
    WorkGraph graph(a.gpu, [&] {
      on(a.gpu.stream(), [&](auto& stream) {
        conv2d_forward(stream, a.x.view(), a.filter.view(), ConstView(), a.y.view(), kBody.options());
      });
    });
    EXPECT_THAT(ran(), ElementsAre());
    graph.replay();
    graph.replay();
    a.gpu.synchronize();
    EXPECT_THAT(ran(), ElementsAre(Pair(engine::kNondeterministic, 2)));
  }
  EXPECT_EQ(a.gpu.choices().size(), 0u);
  a.forward();
  EXPECT_EQ(a.gpu.choices().size(), 1u);
}

TEST(LruCache, DropsWhatWasNotUsedForLongest) {
  LruCache<int, std::string> cache(2);
  cache.insert(1, "one");
  cache.insert(2, "two");
  ASSERT_NE(cache.find(1), nullptr);
  cache.insert(3, "three");
  EXPECT_EQ(cache.find(2), nullptr);
  ASSERT_NE(cache.find(1), nullptr);
  EXPECT_EQ(*cache.find(1), "one");
  EXPECT_EQ(cache.insert(3, "drei"), "drei");
  EXPECT_EQ(*cache.find(3), "drei");
  EXPECT_EQ(cache.size(), 2u);
}

}  // namespace
}  // namespace convoy
