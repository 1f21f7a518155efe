// NVTX ranges as a profiler sees them, by a library that NVTX loads.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/autograd/op_observer.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/profile/profiler.h"
#include "convoy/kernels/runtime/named_range.h"
#include "tests/engine/nvtx_recorder.h"
#include "tests/testing/op_cases/evaluate.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;

/// Collects the open ranges whenever an operation ends.
class RangesOfOps final : public OpObserver {
 public:
  explicit RangesOfOps(std::string (*open)()) : open_(open) { activate(this); }
  ~RangesOfOps() override { activate(nullptr); }
  void forward_done(const OpCall& call, const Node*) override { add(call.name, forward); }
  void backward_done(const Node& node, const Tensor&) override { add(node.name, backward); }

  std::vector<std::string> forward, backward;  // the open ranges of each operation

 private:
  void add(std::string_view op, std::vector<std::string>& all) const {
    all.push_back(open_());
    const std::size_t slash = all.back().rfind('/');
    EXPECT_EQ(all.back().substr(slash == std::string::npos ? 0 : slash + 1), op);
  }
  std::string (*open_)();
};

class Nvtx : public ::testing::Test {
 protected:
  // Before the first range of the program, at which NVTX loads the library.
  static void SetUpTestSuite() {
    const auto library = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "nvtx_recorder.so";
    ASSERT_EQ(setenv("NVTX_INJECTION64_PATH", library.c_str(), 1), 0);
    void* const recorder = dlopen(library.c_str(), RTLD_NOW);
    ASSERT_NE(recorder, nullptr) << dlerror();
    recorder_ = reinterpret_cast<decltype(recorder_)>(dlsym(recorder, "open_nvtx_ranges"));
    ASSERT_NE(recorder_, nullptr) << dlerror();
  }
  static std::string open_ranges() { return recorder_(); }

  DeviceContext cpu = DeviceContext::create_cpu({.threads = 1});

 private:
  inline static decltype(&open_nvtx_ranges) recorder_ = nullptr;
};

TEST_F(Nvtx, RangesNestOnEachThread) {
  {
    const NamedRange outer("outer");
    const Profiler::Range inner(nullptr, "inner");
    EXPECT_EQ(open_ranges(), "outer/inner");
    std::thread([&] {
      const NamedRange other("other");
      EXPECT_EQ(open_ranges(), "other");
    }).join();
    EXPECT_EQ(open_ranges(), "outer/inner");
  }
  EXPECT_EQ(open_ranges(), "");
  const NamedRange longest(std::string(100, 'a'));
  EXPECT_EQ(open_ranges(), std::string(63, 'a')) << "longer names are cut";
}

TEST_F(Nvtx, EveryOpHasARangeForwardAndBackward) {
  for (const OpCase& op_case : all_op_cases()) {
    SCOPED_TRACE(op_case.name);
    const RangesOfOps ranges(open_ranges);
    evaluate(op_case, DType::f32, cpu);
    EXPECT_FALSE(ranges.forward.empty());
    EXPECT_FALSE(ranges.backward.empty());
    EXPECT_EQ(open_ranges(), "");
  }
}

TEST_F(Nvtx, RangesOfOpsAreWithinThoseOfModules) {
  nn::Sequential net({{"first", std::make_shared<nn::Linear>(8, 4)},
                      {"act", std::make_shared<nn::Activation>(nn::ActivationKind::gelu)}});
  net.to(cpu);
  net.initialize(/*seed=*/1);
  const RangesOfOps ranges(open_ranges);
  backward(sum(net(Variable(Tensor::full({2, 8}, 1, DType::f32, cpu)), {.training = true})));
  EXPECT_THAT(ranges.forward, ElementsAre("model/first/linear", "model/act/gelu", "sum"));
  EXPECT_THAT(ranges.backward, ElementsAre("sum", "gelu", "linear"));
}

}  // namespace
}  // namespace convoy::testing
