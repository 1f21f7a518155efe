// Tests of plans that cuDNN compiles at run time: on several threads, and kept with the algorithm cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "convoy/kernels/runtime/stream.h"
#include "emulator/runtime/emulator.h"
#include "tests/kernels/cuda/cudnn/cudnn_fixture.h"

namespace convoy {
namespace {

using namespace testing;    // NOLINT: the fixture
using namespace ::testing;  // NOLINT: matchers
namespace engine = emulator::cudnn_engine;

/// Returns what the emulated cuDNN has done since the last call.
emulator::VendorCounts take_counts() {
  emulator::VendorCounts counts = emulator::vendor_counts();
  emulator::reset_vendor_counts();
  return counts;
}

/// Runs the convolution on a new device with the entry of kForward that another one has stored.
struct SecondStart : Convolution<float> {
  explicit SecondStart(const Convolution<float>& first, const CudaOptions& options = {})
      : SecondStart(*first.gpu.algorithm_cache().find(kForward), first.gpu.algorithm_cache().code(kForward),
                    options) {}
  SecondStart(const std::string& text, const std::string& code, const CudaOptions& options = {})
      : Convolution<float>(options) {
    gpu.algorithm_cache().insert(std::string(kForward), text, code);
  }
};

using CompiledPlans = CudnnConv2d;

// Five plans of the list are compiled. On one core, one thread compiles all.
TEST_F(CompiledPlans, AreCompiledBySeveralThreads) {
  const auto slow = with([](auto& cudnn) { cudnn.finalize_ms[engine::kKnobs] = 100; });
  Convolution<float> a;
  a.forward();
  const emulator::VendorCounts counts = take_counts();
  EXPECT_EQ(counts.compiled_plans, 5);
  EXPECT_EQ(counts.max_concurrent_plans, std::min(available_cores(), 5));
  EXPECT_THAT(a.gpu.algorithm_cache().find(kForward), Optional(std::string(kKnobs)));
}

TEST_F(CompiledPlans, AreCompiledByOneThreadIfThereIsNoFurtherHandle) {
  const auto one_handle = with([](auto& cudnn) {
    cudnn.finalize_ms[engine::kKnobs] = 20;
    cudnn.max_handles = 1;
  });
  Convolution<float> a;
  a.forward();
  const emulator::VendorCounts counts = take_counts();
  EXPECT_EQ(counts.compiled_plans, 5);
  EXPECT_EQ(counts.max_concurrent_plans, 1);
  EXPECT_THAT(a.gpu.algorithm_cache().find(kForward), Optional(std::string(kKnobs)));
}

TEST_F(CompiledPlans, AreNotCompiledAgainByTheNextStart) {
  Convolution<float> first;
  first.forward();
  first.forward();
  EXPECT_EQ(take_counts().compiled_plans, 5);
  for (const bool autotune : {false, true}) {
    SecondStart second(first);
    second.gpu.set_autotune(autotune);
    second.forward();
    const emulator::VendorCounts counts = take_counts();
    EXPECT_EQ(counts.compiled_plans, 0);
    EXPECT_EQ(counts.restored_plans, 1);
    EXPECT_THAT(counts.convolutions, ElementsAre(Pair(engine::kKnobs, 1))) << "nothing is timed";
    EXPECT_THAT(second.gpu.take_warnings(), IsEmpty());
    testing::expect_same_bits(second.y.values(), first.y.values());
  }
}

TEST_F(CompiledPlans, OfCachesWithoutCodeAreCompiledOnce) {
  SecondStart a(std::string(kKnobs), "");
  a.forward();
  EXPECT_EQ(take_counts().compiled_plans, 1);
  EXPECT_THAT(a.gpu.take_warnings(), IsEmpty());
  const Convolution<float>& earlier = a;
  SecondStart b(earlier);
  b.forward();
  EXPECT_EQ(take_counts().compiled_plans, 0);
}

TEST_F(CompiledPlans, AreCompiledAgainIfTheCodeCannotBeUsed) {
  Convolution<float> first;
  first.forward();
  const std::string code = first.gpu.algorithm_cache().code(kForward);
  ASSERT_NE(code, "");
  const auto expect_compiled = [&](const std::string& text, const std::string& stored,
                                   const std::string& reason) {
    SCOPED_TRACE(reason);
    take_counts();
    SecondStart second(text, stored);
    second.forward();
    EXPECT_EQ(take_counts().compiled_plans, 1);
    EXPECT_THAT(second.gpu.take_warnings(), ElementsAre(AllOf(HasSubstr(kForward), HasSubstr(reason))));
    // The new code replaces the old one.
    const Convolution<float>& earlier = second;
    SecondStart third(earlier);
    third.forward();
    EXPECT_EQ(take_counts().compiled_plans, 0);
    EXPECT_THAT(third.gpu.take_warnings(), IsEmpty());
  };
  const std::string text(kKnobs);
  expect_compiled(text, "{}", "CUDNN_STATUS_BAD_PARAM (2000)");
  expect_compiled(text, code.substr(0, code.size() / 2), "CUDNN_STATUS_BAD_PARAM (2000)");
  expect_compiled("engine 11 knobs 0=1 2=0 workspace 4608", code, "another plan");
  {
    const auto newer = with([](auto& cudnn) { ++cudnn.version; });
    expect_compiled(text, code, "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH (1002)");
  }
  emulator::Settings updated = emulator::settings();
  updated.driver_version += 10;
  const emulator::ScopedSettings scoped(updated);
  expect_compiled(text, code, "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH (3007)");
}

TEST_F(CompiledPlans, WarnOncePerStream) {
  Convolution<bfloat16> a;
  const std::string fused = std::string(kForwardHalf) + " bias relu";
  a.gpu.algorithm_cache().insert(std::string(kForwardHalf), std::string(kKnobs), "{}");
  a.gpu.algorithm_cache().insert(fused, std::string(kKnobs), "{}");
  a.forward();
  a.forward(true, true);
  EXPECT_EQ(take_counts().compiled_plans, 2);
  EXPECT_THAT(a.gpu.take_warnings(), SizeIs(1));
}

TEST_F(CompiledPlans, AreNotRestoredByDeterministicStreams) {
  Convolution<float> first;
  first.forward();
  take_counts();
  SecondStart second(first, {.deterministic = true});
  second.forward();
  EXPECT_EQ(take_counts().restored_plans, 0);
}

TEST_F(CompiledPlans, AloneHaveCode) {
  const auto small = with([](auto& cudnn) { cudnn.greedy_workspace = 1 << 20; });
  Convolution<float> a;
  a.forward();
  EXPECT_THAT(a.gpu.algorithm_cache().find(kForward), Optional(StartsWith("engine 5 ")));
  EXPECT_EQ(a.gpu.algorithm_cache().code(kForward), "");
}

}  // namespace
}  // namespace convoy
