// The synchronizer on a GPU: streams wait for each other where the host does not, and an update can be
// recorded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/gradient_synchronizer.h"
#include "engine/autograd/backward.h"
#include "engine/ops/ops.h"
#include "kernels/elementwise.h"
#include "kernels/runtime/cuda_stream.h"
#include "kernels/runtime/work_graph.h"
#include "tests/support/gpu.h"

namespace convoy::testing {
namespace {

using ::testing::Each;

/// Rank 0 of two, the other of which has the same gradients: a sum doubles, on a stream of its own.
class Twins final : public Communicator {
 public:
  explicit Twins(const Device& gpu) : Communicator(0, 2, gpu), stream_(gpu.index(), gpu.memory()) {}

  std::string name() const override { return "twins"; }
  Stream stream() override { return std::ref(stream_); }
  void check_errors() override {}
  void abort(const std::string&) noexcept override {}

 private:
  void launch_all_reduce(const Collective&, View data) override { scale(stream_, data, 2, GradView(data)); }
  void launch_reduce_scatter(const Collective&, ConstView, View) override {}
  void launch_broadcast(const Collective&, View) override {}
  void launch_all_gather(const Collective&, ConstView, View) override {}
  void run_barrier(const Collective&) override {}
  std::vector<std::string> run_gather(const Collective&, const std::string&) override { return {}; }
  std::unique_ptr<Communicator> run_split(const Collective&, int) override { return nullptr; }
  void run_finish(const Collective&) override {}

  CudaStream stream_;
};

class GpuGradients : public GpuTest {
 protected:
  static NamedParameter parameter(const std::string& name, std::int64_t count, const Device& gpu) {
    return {name, Variable(Tensor::full({count}, 1, DType::f32, gpu), true)};
  }
  /// Whose gradients are `factor` and twice that.
  static Variable loss(const NamedParameter& a, const NamedParameter& b, double factor) {
    const Variable of_a = sum(a.variable * factor);
    return of_a + sum(b.variable * (2 * factor));
  }
};

TEST_F(GpuGradients, AreSummedBetweenTheirBackwardAndTheirUse) {
  for_each_order([] {
    for (const std::optional<DType> sent : {std::optional<DType>(), std::optional(DType::bf16)}) {
      const Device gpu = Device::cuda(0);
      Twins comm(gpu);
      const NamedParameter a = parameter("a", 1000, gpu), b = parameter("b", 3000, gpu);
      GradientSynchronizer gradients({a, b}, comm, {.bucket_mb = 0.001, .grad_dtype = sent});
      for (int update = 1; update <= 4; ++update) {  // the plan is made anew after the second
        backward(loss(a, b, update));
        gradients.finish();
        const Tensor used = Tensor::empty_like(a.variable.value());
        on(used.stream(), [&](auto& s) { scale(s, a.variable.grad().view(), 1, GradView(used.view())); });
        EXPECT_THAT(used.to_vector<float>(), Each(2 * update));
        EXPECT_THAT(b.variable.grad().to_vector<float>(), Each(4 * update));
      }
      gradients.finish();  // with nothing to give
      EXPECT_THAT(a.variable.grad().to_vector<float>(), Each(0));
      EXPECT_FALSE(a.variable.has_fresh_grad());
    }
  });
}

TEST_F(GpuGradients, AreSummedInARecordedUpdate) {
  for_each_order([] {
    const Device gpu = Device::cuda(0);
    Twins comm(gpu);
    const NamedParameter a = parameter("a", 1000, gpu), b = parameter("b", 3000, gpu);
    GradientSynchronizer gradients({a, b}, comm, {.bucket_mb = 0.001});
    while (!gradients.settled()) {
      backward(loss(a, b, 1));
      gradients.finish();
    }
    const Tensor factors = Tensor::full({1000}, 1, DType::f32, gpu);
    WorkGraph graph(gpu, [&] {
      backward(sum(a.variable * Variable(factors)) + sum(b.variable * 3.0));
      gradients.finish();
      on(gpu.stream(), [&](auto& s) {
        add(s, a.variable.value().view(), a.variable.grad().view(), a.variable.value().view());
      });
    });
    for (int replay = 1; replay <= 3; ++replay) {
      on(gpu.stream(), [&](auto& s) { fill(s, replay, factors.view()); });
      graph.replay();
    }
    EXPECT_THAT(a.variable.value().to_vector<float>(), Each(1 + 2 * (1 + 2 + 3)));
    EXPECT_THAT(b.variable.grad().to_vector<float>(), Each(6));
  });
}

TEST_F(GpuGradients, AreTimedInEachReplay) {
  for_each_order([] {
    const Device gpu = Device::cuda(0);
    Twins comm(gpu);
    const NamedParameter a = parameter("a", 1000, gpu), b = parameter("b", 3000, gpu);
    GradientSynchronizer gradients({a, b}, comm,
                                   {.bucket_mb = 0.001, .deterministic = true, .time_buckets = true});
    const auto update = [&] {
      backward(loss(a, b, 1));
      gradients.finish();
    };
    update();  // makes what a recording finds
    WorkGraph graph(gpu, update);
    TimeMark begin(gpu), end(gpu);
    for (const bool replayed : {false, true, true}) {
      SCOPED_TRACE(replayed);
      begin.record();
      if (replayed) {
        graph.replay();
      } else {
        update();
      }
      end.record();
      const std::vector<BucketTime> times = gradients.bucket_times(begin);
      ASSERT_EQ(times.size(), 2U);
      EXPECT_GE(times[0].begin_ms, 0) << "a time of an earlier update";
      EXPECT_GT(times[0].end_ms, times[0].begin_ms);
      EXPECT_GE(times[1].begin_ms, times[0].end_ms);
      EXPECT_GT(times[1].end_ms, times[1].begin_ms);
      EXPECT_LE(times[1].end_ms, elapsed_ms(begin, end));
    }
  });
}

}  // namespace
}  // namespace convoy::testing
