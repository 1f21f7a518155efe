// Tests of the choice of cuDNN engines.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/kernels/base/lru_cache.h"
#include "convoy/kernels/cuda/cudnn/conv2d_graph.h"
#include "convoy/kernels/cuda/cudnn/plan.h"
#include "convoy/kernels/cuda/primitives/timing.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "emulator/runtime/emulator.h"
#include "tests/kernels/cuda/cudnn/cudnn_fixture.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using namespace testing;    // NOLINT: the fixture
using namespace ::testing;  // NOLINT: matchers
namespace engine = emulator::cudnn_engine;

TEST_F(CudnnConv2d, ProblemsHaveReadableKeys) {
  kernels::Conv2dProblem problem{.direction = kernels::Conv2dDirection::forward,
                                 .dtype = DType::bf16,
                                 .sizes = kernels::ConvSizes({128, 32, 24, 3}, {64, 7, 5, 3},
                                                             {128, 16, 12, 64}, {.stride = 2, .padding = 3}),
                                 .bias = true,
                                 .relu = true,
                                 .alignment = 16};
  EXPECT_EQ(problem.text(), "conv2d forward bf16 n128 32x24x3 k64 7x5 s2 p3 bias relu");
  problem.bias = problem.relu = false;
  problem.direction = kernels::Conv2dDirection::backward_filter;
  problem.alignment = 4;
  EXPECT_EQ(problem.text(), "conv2d backward filter bf16 n128 32x24x3 k64 7x5 s2 p3 aligned 4");
  problem.direction = kernels::Conv2dDirection::backward_data;
  EXPECT_THAT(problem.text(), StartsWith("conv2d backward data bf16 "));
  problem.sizes.stride = {2, 1};
  problem.sizes.dilation = 2;
  EXPECT_THAT(problem.text(), HasSubstr(" s2x1 p3 d2 "));
}

TEST_F(CudnnConv2d, RejectsEnginesByNumericalNotes) {
  const auto allowed = [](const kernels::EngineRules& rules) {
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
  EXPECT_TRUE(kernels::EngineRules{}.allow({}));
}

TEST_F(CudnnConv2d, RoundsF32OperandsOnlyOnRequest) {
  Convolution<float> strict, rounded({.tf32 = true});
  strict.gpu.set_autotune(false);
  rounded.gpu.set_autotune(false);
  strict.forward();
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kNondeterministic, 1)));
  rounded.forward();
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kTensorCore, 1)));

  rounded.gpu.set_autotune(true);
  rounded.forward();
  EXPECT_EQ(rounded.gpu.algorithm_cache().entries().front().first, std::string(kForward) + " tf32");
}

TEST_F(CudnnConv2d, DeterministicStreamsUseFirstDeterministicEngine) {
  Convolution<float> a({.deterministic = true});
  a.gpu.set_autotune(true);
  a.store(kForward, "engine 0 workspace 0");  // a stored plan, which must not be used
  a.forward();
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kKnobs, 1)));
}

TEST_F(CudnnConv2d, StoresAndUsesFastestEngine) {
  Convolution<float> a;
  a.forward();
  runs_by_engine();
  EXPECT_THAT(a.gpu.algorithm_cache().entries(), ElementsAre(Pair(kForward, StartsWith("engine 11 knobs "))));
  a.forward();
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kKnobs, 1)));

  const auto small = with([](auto& cudnn) { cudnn.greedy_workspace = 1 << 20; });
  Convolution<float> b;
  b.forward();
  EXPECT_THAT(b.gpu.algorithm_cache().entries(), ElementsAre(Pair(kForward, "engine 5 workspace 1048576")));
}

TEST_F(CudnnConv2d, ResultIsThatOfFastestEngineAfterAutotuning) {
  const auto first_is_fastest = with([](auto& cudnn) {
    cudnn.greedy_workspace = 1 << 20;
    cudnn.execution_ms[engine::kGreedy] = 500;
  });
  Convolution<float> timed, fastest, later;
  timed.forward();
  EXPECT_THAT(timed.gpu.algorithm_cache().find(kForward), Optional(std::string(kKnobs)));
  EXPECT_THAT(runs_by_engine(), Contains(Pair(engine::kGreedy, Gt(1)))) << "which is timed after it";
  fastest.store(kForward, kKnobs);
  fastest.forward();
  later.store(kForward, "engine 5 workspace 1048576");
  later.forward();
  testing::expect_same_bits(timed.y.values(), fastest.y.values());
  EXPECT_NE(std::memcmp(later.y.values().begin(), fastest.y.values().begin(), 4 * later.y.values().size()),
            0);
}

// Timings vary by a few percent, so a small gain must not make plans differ between runs.
TEST_F(CudnnConv2d, KeepsFirstProposalUnlessAnotherOneIsClearlyFaster) {
  for (const auto& [first_ms, chosen] : {std::pair{205.0, "engine 3 workspace 0"}, {215.0, kKnobs.data()}}) {
    const auto times = with([&, ms = first_ms](auto& cudnn) {
      cudnn.execution_ms = {{engine::kNondeterministic, ms}, {engine::kKnobs, 200}};
    });
    Convolution<float> a;
    a.forward();
    EXPECT_THAT(a.gpu.algorithm_cache().find(kForward), Optional(std::string(chosen))) << first_ms;
  }
}

TEST_F(CudnnConv2d, TimesProposalsOfSlowerHeuristicsOnRequest) {
  const auto runs_with = [](const char* modes) {
    setenv("CONVOY_CUDNN_HEURISTICS", modes, 1);
    Convolution<float> a;
    a.forward();
    unsetenv("CONVOY_CUDNN_HEURISTICS");
    return runs_by_engine();
  };
  const std::map<std::int64_t, int> some = runs_with("a"), more = runs_with("ab");
  EXPECT_EQ(more.at(engine::kNondeterministic), some.at(engine::kNondeterministic))
      << "a proposal of both modes is timed once";
  EXPECT_EQ(more.at(engine::kKnobs), some.at(engine::kKnobs) + 2 * 2) << "two proposals of mode B alone";
  try {
    runs_with("b");
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "CONVOY_CUDNN_HEURISTICS: found 'b', expected a or ab");
  }
  unsetenv("CONVOY_CUDNN_HEURISTICS");
}

/// Adds both gradients to arrays, and returns these. Needs the arrays of a forward pass.
template <class T>
std::pair<Array<T>, Array<T>> accumulated_gradients(Convolution<T>& a) {
  const DeviceArray<T> dx{a.gpu, Array<T>::random(kBody.x(), 4)},
      dw{a.gpu, Array<T>::random(kBody.filter(), 5)};
  const auto added = [](View view) { return GradView(view, GradMode::accumulate); };
  on(a.gpu.stream(), [&](auto& stream) {
    kernels::conv2d_backward_data(stream, a.y.view(), a.filter.view(), added(dx.view()), kBody.options());
    kernels::conv2d_backward_filter(stream, a.y.view(), a.x.view(), added(dw.view()), kBody.options());
  });
  a.gpu.synchronize();
  return {dx.values(), dw.values()};
}

// The same with and without engines that can. Timing runs each engine several times, and must not add each
// time.
TEST_F(CudnnConv2d, AddsToGradientsInTheConvolution) {
  Convolution<float> fused, separate;
  fused.forward();
  const auto [dx, dw] = accumulated_gradients(fused);
  EXPECT_THAT(
      fused.gpu.algorithm_cache().entries(),
      IsSupersetOf(
          {Pair("conv2d backward data f32 n2 6x6x16 k16 3x3 s1 p1 accumulate", StartsWith("engine ")),
           Pair("conv2d backward filter f32 n2 6x6x16 k16 3x3 s1 p1 accumulate", StartsWith("engine "))}));
  const auto no_engine = with([](auto& cudnn) { cudnn.accumulates = false; });
  separate.forward();
  const auto [separate_dx, separate_dw] = accumulated_gradients(separate);
  EXPECT_THAT(separate.gpu.algorithm_cache().entries(),
              Contains(Pair("conv2d backward data f32 n2 6x6x16 k16 3x3 s1 p1", StartsWith("engine "))));
  EXPECT_THAT(separate.gpu.take_warnings(), IsEmpty());
  testing::expect_same_bits(dx, separate_dx);
  testing::expect_same_bits(dw, separate_dw);
}

// Half precision has 31 plans. The first 14 are those of one engine, with the tiles 0 to 13. The fastest one
// is the 28th.
TEST_F(CudnnConv2d, FindsFastestPlanAnywhereInTheList) {
  const auto late = with([](auto& cudnn) {
    cudnn.execution_ms[engine::kTensorCore] = 20;
    cudnn.best_tile = 19;
  });
  Convolution<bfloat16> a;
  a.forward();
  EXPECT_THAT(a.gpu.algorithm_cache().find(kForwardHalf),
              Optional(std::string("engine 7 knobs 2=19 workspace 0")));
}

// Of the 31 plans for half precision, one has a workspace that does not fit and one does not finalize.
TEST_F(CudnnConv2d, TimesEveryPlanOnceAndOnlyFastOnesAgain) {
  const auto times = with([](auto& cudnn) {
    cudnn.execution_ms = {
        {engine::kNondeterministic, 140}, {engine::kTensorCore, 160}, {engine::kKnobs, 100}};
  });
  Convolution<bfloat16> a;
  a.forward();
  const std::map<std::int64_t, int> runs = runs_by_engine();
  EXPECT_EQ(runs.at(engine::kTensorCore), 23 * 2) << "a run that loads the code, and one that is timed";
  EXPECT_EQ(runs.at(engine::kNondeterministic), 2 + 4)
      << "it takes less than 1.5 times as long as the fastest";
  EXPECT_EQ(runs.at(engine::kKnobs), 5 * (2 + 4) + 1) << "the fastest one computes the result";
}

// Times of a GPU: a launch takes the host 10 us, and both engines are faster.
TEST_F(CudnnConv2d, TimesShortKernelsWithoutTheHost) {
  emulator::Settings settings = emulator::settings();
  settings.launch_ms = 0.010;
  const emulator::ScopedSettings scoped(settings);
  const auto short_kernels = with([](auto& cudnn) {
    cudnn.execution_ms = {{engine::kNondeterministic, 0.008}, {engine::kKnobs, 0.003}};
  });
  Convolution<float> a;
  a.forward();
  EXPECT_THAT(a.gpu.algorithm_cache().find(kForward), Optional(std::string(kKnobs)));
  runs_by_engine();

  on(a.gpu.stream(), [&](auto& stream) {
    if constexpr (std::is_same_v<std::remove_reference_t<decltype(stream)>, CudaStream>) {
      const auto run = [&] {
        kernels::conv2d_forward(stream, a.x.view(), a.filter.view(), ConstView(), a.y.view(),
                                kBody.options());
        return true;
      };
      EXPECT_THAT(kernels::cuda::measure_ms(stream, {run, [&] { return run() && run(); }}),
                  ElementsAre(DoubleNear(0.003, 1e-6), std::numeric_limits<double>::infinity()));
      EXPECT_THAT(kernels::cuda::measure_ms(stream, {[&] { return run() && run(); }}),
                  ElementsAre(DoubleNear(0.006, 1e-6)));
    }
  });
}

TEST_F(CudnnConv2d, DoesNotStoreFirstGuess) {
  Convolution<float> a;
  a.gpu.set_autotune(false);
  a.forward();
  a.forward();
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kNondeterministic, 2)));
  EXPECT_EQ(a.gpu.algorithm_cache().size(), 0u);
  a.gpu.set_autotune(true);
  a.forward();
  EXPECT_EQ(a.gpu.algorithm_cache().size(), 1u);
}

TEST_F(CudnnConv2d, UsesStoredPlan) {
  Convolution<float> a;
  a.store(kForward, "engine 0 workspace 0");
  a.forward();
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kPlain, 1)));
  Convolution<float> b;
  b.store(kForward, "engine 11 knobs 0=4 2=1 workspace 18432");
  b.forward();
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kKnobs, 1)));
}

TEST_F(CudnnConv2d, StoredPlanReplacesFirstGuess) {
  Convolution<float> a;
  a.gpu.set_autotune(false);
  a.forward();
  a.store(kForward, "engine 0 workspace 0");
  runs_by_engine();
  a.forward();
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kPlain, 1)));
}

TEST_F(CudnnConv2d, IgnoresInvalidStoredPlan) {
  for (const std::string_view value : {"",
                                       "separate",
                                       "engine",
                                       "engine x workspace 0",
                                       "engine 0",
                                       "engine 0 workspace",
                                       "engine 0 workspace 0 0",
                                       "engine 0 workspace 1",
                                       "engine 2 workspace 0",
                                       "engine 4 workspace 0",
                                       "engine 12 workspace 0",
                                       "engine -1 workspace 0",
                                       "engine 0 knobs 0=2 workspace 0",
                                       "engine 11 knobs 0=3 workspace 9216",
                                       "engine 11 knobs 0=2 0=2 workspace 9216",
                                       "engine 11 knobs 44=2 workspace 9216",
                                       "engine 11 knobs workspace",
                                       "engine 11 knobs 0 workspace 9216",
                                       "engine 7 workspace 0",
                                       "implicit_gemm"}) {
    SCOPED_TRACE(value);
    Convolution<float> a;
    a.gpu.set_autotune(false);
    a.store(kForward, value);
    a.forward();
    EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kNondeterministic, 1)));
  }
}

TEST_F(CudnnConv2d, UsesLessWorkspaceWhenOutOfMemory) {
  const auto greedy = with([](auto& cudnn) { cudnn.greedy_workspace = 8 << 20; });
  const std::string choice = "engine 5 workspace 8388608";
  Convolution<float> a;
  a.store(kForward, choice);
  {
    emulator::Settings small = emulator::settings();
    small.memory_bytes = 4 << 20;
    const emulator::ScopedSettings settings(small);
    a.forward();
    EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kNondeterministic, 1)));
  }
  a.forward();  // must not try again, since that releases all cached memory
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kNondeterministic, 1)));
  EXPECT_THAT(a.gpu.algorithm_cache().find(kForward),
              Optional(choice));  // another run may have enough memory

  Convolution<float> b;
  b.store(kForward, choice);
  b.forward();
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kGreedy, 1)));
}

TEST_F(CudnnConv2d, ReportsMissingMemoryIfNoWorkspaceFits) {
  const auto greedy = with([](auto& cudnn) {
    cudnn.refused = failures({engine::kPlain, engine::kRefused, engine::kNondeterministic, engine::kKnobs});
  });
  for (const bool autotune : {false, true}) {
    Convolution<float> a;
    a.gpu.set_autotune(autotune);
    EXPECT_THAT(message_of<DeviceError>([&] { a.forward(); }), HasSubstr("64.00 GiB"));
    EXPECT_EQ(a.gpu.algorithm_cache().size(), 0u);
  }
}

TEST_F(CudnnConv2d, UsesFallbackHeuristicsIfNoPlanFinalizes) {
  const auto plain = with([](auto& cudnn) {
    cudnn.refused = failures({engine::kRefused, engine::kNondeterministic, engine::kGreedy, engine::kKnobs});
  });
  Convolution<float> a;
  a.forward();
  EXPECT_THAT(a.gpu.algorithm_cache().entries(), ElementsAre(Pair(kForward, "engine 0 workspace 0")));
}

// A launch of one of this project's kernels shows that bias and ReLU were not fused.
TEST_F(CudnnConv2d, FusesBiasAndReluIfEngineSupportsIt) {
  Convolution<bfloat16> half;
  half.gpu.set_autotune(false);
  std::uint64_t before = emulator::launches();
  half.forward(true, true);
  EXPECT_EQ(emulator::launches() - before, 0u);
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kKnobs, 1)));

  Convolution<float> single;
  single.gpu.set_autotune(false);
  before = emulator::launches();
  single.forward(true, true);
  EXPECT_EQ(emulator::launches() - before, 1u);
  EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kNondeterministic, 1)));
}

TEST_F(CudnnConv2d, AutotunesAndStoresFusion) {
  Convolution<bfloat16> half;
  half.forward(true, true);
  EXPECT_THAT(half.gpu.algorithm_cache().find(std::string(kForwardHalf) + " bias relu"),
              Optional(StartsWith("engine 11 knobs ")));
  Convolution<float> single;
  single.forward(true, false);
  EXPECT_THAT(single.gpu.algorithm_cache().find(std::string(kForward) + " bias"),
              Optional(std::string("separate")));
  EXPECT_THAT(single.gpu.algorithm_cache().find(kForward), Optional(StartsWith("engine 11 knobs ")));

  Convolution<bfloat16> separate;
  separate.store(std::string(kForwardHalf) + " bias relu", "separate");
  separate.gpu.set_autotune(false);
  const std::uint64_t before = emulator::launches();
  separate.forward(true, true);
  EXPECT_EQ(emulator::launches() - before, 1u);
}

TEST_F(CudnnConv2d, DoesNotAutotuneDuringCapture) {
  Convolution<float> a;
  {
    CudaGraph graph(a.gpu, [&] {
      on(a.gpu.stream(), [&](auto& stream) {
        kernels::conv2d_forward(stream, a.x.view(), a.filter.view(), ConstView(), a.y.view(),
                                kBody.options());
      });
    });
    EXPECT_THAT(runs_by_engine(), ElementsAre());
    graph.replay();
    graph.replay();
    a.gpu.synchronize();
    EXPECT_THAT(runs_by_engine(), ElementsAre(Pair(engine::kNondeterministic, 2)));
  }
  EXPECT_EQ(a.gpu.algorithm_cache().size(), 0u);
  a.forward();
  EXPECT_EQ(a.gpu.algorithm_cache().size(), 1u);
}

TEST(LruCache, EvictsLeastRecentlyUsed) {
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
