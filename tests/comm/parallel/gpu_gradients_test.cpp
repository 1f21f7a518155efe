// Tests of GradientSynchronizer on a GPU: the order of streams without host waits, and steps in CUDA graphs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/comm/parallel/gradient_synchronizer.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "tests/testing/support/gpu.h"

namespace convoy::testing {
namespace {

using ::testing::Each;

/// Rank 0 of two ranks with equal gradients: the all-reduce doubles them, on a stream of its own.
class Twins final : public dist::Communicator {
 public:
  explicit Twins(const DeviceContext& gpu)
      : dist::Communicator(0, 2, gpu), stream_(gpu.device().index, gpu.memory()) {}

  std::string name() const override { return "twins"; }
  Stream stream() override { return std::ref(stream_); }
  void check_errors() override {}
  void abort(const std::string&) noexcept override {}

 private:
  void launch_all_reduce(const dist::CollectiveSignature&, View data) override {
    kernels::scale(stream_, data, 2, GradView(data));
  }
  void launch_reduce_scatter(const dist::CollectiveSignature&, ConstView, View) override {}
  void launch_broadcast(const dist::CollectiveSignature&, View) override {}
  void launch_all_gather(const dist::CollectiveSignature&, ConstView, View) override {}
  void run_barrier(const dist::CollectiveSignature&) override {}
  std::vector<std::string> run_gather_object(const dist::CollectiveSignature&, const std::string&) override {
    return {};
  }
  std::unique_ptr<dist::Communicator> run_split(const dist::CollectiveSignature&, int) override {
    return nullptr;
  }
  void run_finish(const dist::CollectiveSignature&) override {}

  CudaStream stream_;
};

class GpuGradients : public GpuTest {
 protected:
  static nn::NamedParameter parameter(const std::string& name, std::int64_t count, const DeviceContext& gpu) {
    return {name, Variable(Tensor::full({count}, 1, DType::f32, gpu), true)};
  }
  /// Returns a loss whose gradients are `factor` for a and twice that for b.
  static Variable loss(const nn::NamedParameter& a, const nn::NamedParameter& b, double factor) {
    const Variable of_a = sum(a.variable * factor);
    return of_a + sum(b.variable * (2 * factor));
  }
};

TEST_F(GpuGradients, AreSummedBetweenBackwardAndUse) {
  for_each_order([] {
    for (const std::optional<DType> sent : {std::optional<DType>(), std::optional(DType::bf16)}) {
      const DeviceContext gpu = DeviceContext::create_cuda(0);
      Twins comm(gpu);
      const nn::NamedParameter a = parameter("a", 1000, gpu), b = parameter("b", 3000, gpu);
      dist::GradientSynchronizer gradients({a, b}, comm, {.bucket_mb = 0.001, .grad_dtype = sent});
      for (int step = 1; step <= 4; ++step) {  // the plan changes after the second
        backward(loss(a, b, step));
        gradients.finish();
        const Tensor used = Tensor::empty_like(a.variable.value());
        on(used.stream(),
           [&](auto& s) { kernels::scale(s, a.variable.grad().view(), 1, GradView(used.view())); });
        EXPECT_THAT(used.to_vector<float>(), Each(2 * step));
        EXPECT_THAT(b.variable.grad().to_vector<float>(), Each(4 * step));
      }
      gradients.finish();  // without a gradient on this rank
      EXPECT_THAT(a.variable.grad().to_vector<float>(), Each(0));
      EXPECT_FALSE(a.variable.has_new_grad());
    }
  });
}

TEST_F(GpuGradients, AreSummedInCapturedStep) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    Twins comm(gpu);
    const nn::NamedParameter a = parameter("a", 1000, gpu), b = parameter("b", 3000, gpu);
    dist::GradientSynchronizer gradients({a, b}, comm, {.bucket_mb = 0.001});
    while (!gradients.bucket_plan_final()) {
      backward(loss(a, b, 1));
      gradients.finish();
    }
    const Tensor factors = Tensor::full({1000}, 1, DType::f32, gpu);
    CudaGraph graph(gpu, [&] {
      backward(sum(a.variable * Variable(factors)) + sum(b.variable * 3.0));
      gradients.finish();
      on(gpu.stream(), [&](auto& s) {
        kernels::add(s, a.variable.value().view(), a.variable.grad().view(), a.variable.value().view());
      });
    });
    for (int replay = 1; replay <= 3; ++replay) {
      on(gpu.stream(), [&](auto& s) { kernels::fill(s, replay, factors.view()); });
      graph.replay();
    }
    EXPECT_THAT(a.variable.value().to_vector<float>(), Each(1 + 2 * (1 + 2 + 3)));
    EXPECT_THAT(b.variable.grad().to_vector<float>(), Each(6));
  });
}

TEST_F(GpuGradients, AreTimedInEachReplay) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    Twins comm(gpu);
    const nn::NamedParameter a = parameter("a", 1000, gpu), b = parameter("b", 3000, gpu);
    dist::GradientSynchronizer gradients({a, b}, comm,
                                         {.bucket_mb = 0.001, .deterministic = true, .time_buckets = true});
    const auto step = [&] {
      backward(loss(a, b, 1));
      gradients.finish();
    };
    step();  // allocates what the capture uses
    CudaGraph graph(gpu, step);
    Event begin = Event::timed(gpu.stream()), end = Event::timed(gpu.stream());
    for (const bool replayed : {false, true, true}) {
      SCOPED_TRACE(replayed);
      begin.record();
      if (replayed) {
        graph.replay();
      } else {
        step();
      }
      end.record();
      const std::vector<dist::BucketTime> times = gradients.bucket_times(begin);
      ASSERT_EQ(times.size(), 2U);
      EXPECT_GE(times[0].begin_ms, 0) << "a time of an earlier step";
      EXPECT_GT(times[0].end_ms, times[0].begin_ms);
      EXPECT_GE(times[1].begin_ms, times[0].end_ms);
      EXPECT_GT(times[1].end_ms, times[1].begin_ms);
      EXPECT_LE(times[1].end_ms, elapsed_ms(begin, end));
    }
  });
}

}  // namespace
}  // namespace convoy::testing
