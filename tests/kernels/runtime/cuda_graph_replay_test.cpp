// Replays of captured work: equal results, private memory, and times of each replay.
#include <gtest/gtest.h>

#include <memory>
#include <optional>

#include "convoy/kernels/runtime/cuda_graph.h"
#include "convoy/kernels/runtime/event.h"
#include "tests/kernels/runtime/graph_fixture.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::expect_same_bits;
using testing::stream_of;
using testing::values_of;
using testing::write;
using Step = testing::GraphStep;

constexpr std::int64_t kReplayCount = testing::kGraphCount;
constexpr std::size_t kBytes = kReplayCount * sizeof(float);

class CudaGraphReplay : public testing::GraphTest {};

TEST_F(CudaGraphReplay, MatchesEagerExecution) {
  for_each_gpu([](const DeviceContext& gpu) {
    const Step eager(gpu), captured(gpu);
    CudaGraph graph(gpu, [&] { captured.enqueue(); });
    for (std::uint32_t seed = 0; seed < 5; ++seed) {
      write(gpu, values_of(seed), eager.x);
      write(gpu, values_of(seed), captured.x);
      eager.enqueue();
      graph.replay();
      captured.expect_equals(eager);
    }
  });
}

TEST_F(CudaGraphReplay, CaptureRunsNothing) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, -1));
  CudaGraph graph(
      gpu, [&] { kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view()); });
  expect_same_bits(x.values(), Array<float>({kReplayCount}, -1));
  graph.replay();
  expect_same_bits(x.values(), Array<float>({kReplayCount}, 0));
}

TEST_F(CudaGraphReplay, RunsInStreamOrder) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, 1));
    CudaGraph doubles(gpu, [&] { kernels::add(stream_of(gpu), x.view(), x.view(), x.view()); });
    for (int i = 0; i < 3; ++i) {
      doubles.replay();
      kernels::scale(stream_of(gpu), x.view(), 0.25, x.grad());
      doubles.replay();
    }
    expect_same_bits(x.values(), Array<float>({kReplayCount}, 1));
  });
}

TEST_F(CudaGraphReplay, MemoryOfACaptureIsPrivate) {
  for_each_gpu([](const DeviceContext& gpu) {
    const DeviceArray<float> x(gpu, {kReplayCount}), y(gpu, {kReplayCount});
    void* scratch = nullptr;
    const auto negate_through_scratch = [&] {
      const DeviceArray<float> half(gpu, {kReplayCount});
      scratch = half.view().data;
      kernels::scale(stream_of(gpu), x.view(), -0.5, half.grad());
      kernels::scale(stream_of(gpu), half.view(), 2, y.grad());
    };
    CudaGraph graph(gpu, negate_through_scratch);
    EXPECT_EQ(graph.pool_bytes(), gpu.memory().stats().in_pools);
    EXPECT_GE(graph.pool_bytes(), kBytes);
    for (std::uint32_t seed = 0; seed < 3; ++seed) {
      write(gpu, values_of(seed), x);
      graph.replay();
      // Allocations while the replay is pending get other memory.
      const DeviceArray<float> other(gpu, {kReplayCount}), another(gpu, {kReplayCount});
      EXPECT_NE(other.view().data, scratch);
      EXPECT_NE(another.view().data, scratch);
      kernels::fill(stream_of(gpu), 7, other.view());
      kernels::fill(stream_of(gpu), 8, another.view());
      Array<float> expected = values_of(seed);
      for (float& value : expected) value = -value;
      expect_same_bits(y.values(), expected);
    }
    void* const first_scratch = scratch;
    const CudaGraph second(gpu, negate_through_scratch);
    EXPECT_NE(scratch, first_scratch);
  });
}

TEST_F(CudaGraphReplay, MemoryOfACaptureIsReusedAndReleasedWithTheGraph) {
  for_each_gpu([](const DeviceContext& gpu) {
    const DeviceArray<float> x(gpu, {kReplayCount});
    gpu.memory().trim();
    const MemoryStats before = gpu.memory().stats();
    {
      const CudaGraph graph(gpu, [&] {
        for (int i = 0; i < 10; ++i) {
          const DeviceArray<float> scratch(gpu, {kReplayCount});
          kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), scratch.view());
        }
      });
      EXPECT_LT(graph.pool_bytes(), 2 * kBytes) << "one block, reused ten times";
      EXPECT_EQ(gpu.memory().stats().in_use, before.in_use + graph.pool_bytes());
    }
    gpu.memory().trim();
    EXPECT_EQ(gpu.memory().stats().in_use, before.in_use);
    EXPECT_EQ(gpu.memory().stats().cached, 0u);
  });
}

TEST_F(CudaGraphReplay, BlocksAllocatedInACaptureMayOutliveTheGraph) {
  for_each_gpu([](const DeviceContext& gpu) {
    const DeviceArray<float> x(gpu, values_of(3));
    const MemoryStats before = gpu.memory().stats();
    std::optional<DeviceArray<float>> inside;
    auto graph = std::make_unique<CudaGraph>(gpu, [&] {
      inside.emplace(gpu, Shape{kReplayCount});
      kernels::scale(stream_of(gpu), x.view(), 1, inside->grad());
    });
    graph->replay();
    graph.reset();
    const DeviceArray<float> other(gpu, {kReplayCount});
    EXPECT_NE(other.view().data, inside->view().data);
    kernels::fill(stream_of(gpu), 7, other.view());
    expect_same_bits(inside->values(), values_of(3));
    inside.reset();
    EXPECT_EQ(gpu.memory().stats().in_pools, 0u);
    EXPECT_LE(gpu.memory().stats().in_use - before.in_use, 2 * kBytes) << "only `other` is in use";
  });
}

TEST_F(CudaGraphReplay, DestructorWaitsForReplays) {
  for_each_gpu([](const DeviceContext& gpu) {
    const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, 1));
    Event end = Event::timed(gpu.stream());
    auto graph = std::make_unique<CudaGraph>(gpu, [&] {
      const DeviceArray<float> scratch(gpu, {kReplayCount});
      kernels::scale(stream_of(gpu), x.view(), 3, scratch.grad());
      kernels::scale(stream_of(gpu), scratch.view(), 1, x.grad());
      end.record();
    });
    graph->replay();
    graph->replay();
    graph.reset();
    EXPECT_TRUE(end.reached());
    expect_same_bits(x.values(), Array<float>({kReplayCount}, 9));
  });
}

TEST_F(CudaGraphReplay, TwoGraphsAlternate) {
  for_each_gpu([](const DeviceContext& gpu) {
    const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, 1));
    const auto times = [&](double factor) {
      return [&gpu, &x, factor] {
        const DeviceArray<float> scratch(gpu, {kReplayCount});
        kernels::scale(stream_of(gpu), x.view(), factor, scratch.grad());
        kernels::scale(stream_of(gpu), scratch.view(), 1, x.grad());
      };
    };
    CudaGraph triple(gpu, times(3)), halve(gpu, times(0.5));
    for (int i = 0; i < 4; ++i) {
      triple.replay();
      halve.replay();
      halve.replay();
    }
    expect_same_bits(x.values(), Array<float>({kReplayCount}, 81.0f / 256));
  });
}

TEST_F(CudaGraphReplay, CapturedCopiesUseStagingMemory) {
  for_each_gpu([](const DeviceContext& gpu) {
    auto* const in = static_cast<float*>(gpu.staging().allocate(kBytes));
    float* out = nullptr;
    const DeviceArray<float> x(gpu, {kReplayCount});
    auto graph = std::make_unique<CudaGraph>(gpu, [&] {
      copy_bytes_async(Device::cpu(), ConstView(in, {kReplayCount}, DType::f32), gpu, x.view());
      kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view());
      out = static_cast<float*>(gpu.staging().allocate(kBytes));
      copy_bytes_async(gpu, x.view(), Device::cpu(), View{out, {kReplayCount}, DType::f32});
    });
    for (std::uint32_t seed = 0; seed < 3; ++seed) {
      const Array<float> values = values_of(seed);
      std::copy(values.begin(), values.end(), in);
      graph->replay();
      gpu.synchronize();
      for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(out[i], std::max(0.0f, values[i]));
    }
    gpu.staging().release(out, kBytes);
    void* const other = gpu.staging().allocate(kBytes);
    EXPECT_NE(other, out) << "a replay writes to this block";
    gpu.staging().release(other, kBytes);
    graph.reset();
    gpu.staging().release(in, kBytes);
    EXPECT_EQ(gpu.staging().stats().in_use, 0u);
  });
}

TEST_F(CudaGraphReplay, CapturesForkedStreams) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    CudaStream& main = stream_of(gpu);
    CudaStream side(0, gpu.memory());
    const DeviceArray<float> x(gpu, {kReplayCount}), y(gpu, {kReplayCount}), z(gpu, {kReplayCount}),
        total(gpu, {kReplayCount});
    CudaGraph graph(gpu, [&] {
      CudaEvent fork(0), join(0);
      kernels::unary_forward(main, kernels::UnaryOp::relu, x.view(), y.view());
      main.record(fork);
      side.wait(fork);
      EXPECT_TRUE(side.is_capturing());
      kernels::scale(side, y.view(), 3, y.grad());
      side.record(join);
      kernels::scale(main, x.view(), 2, z.grad());
      main.wait(join);
      kernels::add(main, y.view(), z.view(), total.view());
    });
    EXPECT_FALSE(side.is_capturing());
    for (std::uint32_t seed = 0; seed < 5; ++seed) {
      const Array<float> values = values_of(seed);
      write(gpu, values, x);
      graph.replay();
      Array<float> expected({kReplayCount});
      for (std::size_t i = 0; i < values.size(); ++i)
        expected[i] = 3 * std::max(0.0f, values[i]) + 2 * values[i];
      expect_same_bits(total.values(), expected);
    }
  });
}

TEST_F(CudaGraphReplay, TimedEventsMeasureEachReplay) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, 1));
    Event begin = Event::timed(gpu.stream()), middle = Event::timed(gpu.stream()),
          end = Event::timed(gpu.stream()), outside = Event::timed(gpu.stream());
    CudaGraph graph(gpu, [&] {
      begin.record();
      kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view());
      middle.record();
      kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view());
      end.record();
    });
    outside.record();
    graph.replay();
    const double first = elapsed_ms(outside, end);
    EXPECT_TRUE(end.reached());
    EXPECT_GT(elapsed_ms(begin, end), 0);
    EXPECT_NEAR(elapsed_ms(begin, middle) + elapsed_ms(middle, end), elapsed_ms(begin, end), 0.01);
    graph.replay();
    EXPECT_GT(elapsed_ms(outside, end), first) << "the time of the second replay";
  });
}

TEST_F(CudaGraphReplay, TimedEventsOfAllStreamsShareOneClock) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    CudaStream side(0, gpu.memory());
    const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, 1));
    Event fork(gpu.stream()), join(gpu.stream());
    Event start = Event::timed(gpu.stream()), begin = Event::timed(gpu.stream()),
          side_begin = Event::timed(gpu.stream()), side_end = Event::timed(gpu.stream()),
          end = Event::timed(gpu.stream());
    const auto work = [&] {
      begin.record();
      kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view());
      fork.record(gpu.stream());
      fork.wait(std::ref(side));
      side_begin.record(std::ref(side));
      kernels::unary_forward(side, kernels::UnaryOp::relu, x.view(), x.view());
      side_end.record(std::ref(side));
      join.record(std::ref(side));
      join.wait(gpu.stream());
      end.record();
    };
    CudaGraph graph(gpu, work);
    for (const bool replayed : {false, true, true}) {
      SCOPED_TRACE(replayed);
      start.record();
      if (replayed) {
        graph.replay();
      } else {
        work();
      }
      end.wait();
      EXPECT_TRUE(side_end.reached());
      EXPECT_GE(elapsed_ms(start, begin), 0) << "the time of an earlier round";
      EXPECT_GE(elapsed_ms(begin, side_begin), 0);
      EXPECT_GT(elapsed_ms(side_begin, side_end), 0);
      EXPECT_GE(elapsed_ms(side_end, end), 0);
    }
  });
}

TEST_F(CudaGraphReplay, TimedEventsWorkOutsideACapture) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<float> x(gpu, Array<float>({kReplayCount}, 1));
  Event begin = Event::timed(gpu.stream()), end = Event::timed(gpu.stream());
  EXPECT_TRUE(begin.reached());
  EXPECT_THROW(elapsed_ms(begin, end), UsageError);
  begin.record();
  kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view());
  end.record();
  end.wait();
  EXPECT_TRUE(end.reached());
  EXPECT_GT(elapsed_ms(begin, end), 0);
  EXPECT_THROW(elapsed_ms(begin, Event::timed(DeviceContext(Device::cpu()).stream())), UsageError);
}

TEST_F(CudaGraphReplay, AutotuneIsOffDuringCapture) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  EXPECT_TRUE(stream_of(gpu).autotune());
  const CudaGraph graph(gpu, [&] { EXPECT_FALSE(stream_of(gpu).autotune()); });
  EXPECT_TRUE(stream_of(gpu).autotune());
}

}  // namespace
}  // namespace convoy
