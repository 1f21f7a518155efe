// The side stream of a GPU: DeviceContext::enqueue_on_side_stream().
#include "tests/kernels/runtime/graph_fixture.h"

#include "convoy/kernels/runtime/cuda_graph.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::GraphStep;
using testing::kGraphCount;
using testing::stream_of;
using testing::values_of;

class CudaSideStream : public testing::GraphTest {};

/// Enqueues work that holds `kept` and adds x to y `times` times.
std::uint64_t add_on_side_stream(const DeviceContext& gpu, const DeviceArray<float>& x,
                                 const DeviceArray<float>& y, int times = 1,
                                 std::shared_ptr<int> kept = nullptr) {
  return gpu.enqueue_on_side_stream([&x, &y, times, kept = std::move(kept)](const Stream& stream) {
    on(stream, [&](auto& s) {
      for (int i = 0; i < times; ++i) kernels::scale(s, x.view(), 1, y.grad(GradMode::accumulate));
    });
  });
}

TEST_F(CudaSideStream, OrdersBothStreams) {
  for_each_gpu([](const DeviceContext& gpu) {
    const DeviceArray<float> x(gpu, Array<float>({kGraphCount}, 0)), y(gpu, Array<float>({kGraphCount}, 0));
    const DeviceArray<float> one(gpu, Array<float>({kGraphCount}, 1)), copy(gpu, {kGraphCount});
    CudaStream& stream = stream_of(gpu);
    for (int i = 0; i < 8; ++i) kernels::scale(stream, one.view(), 1, x.grad(GradMode::accumulate));
    const std::uint64_t first = add_on_side_stream(gpu, x, y, 8);
    gpu.wait_for_side_stream(first);
    kernels::unary_forward(stream, kernels::UnaryOp::relu, y.view(), copy.view());
    testing::expect_same_bits(copy.values(), Array<float>({kGraphCount}, 64));
  });
}

TEST_F(CudaSideStream, HoldsWhatTheWorkUsesUntilItIsAwaited) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<float> x(gpu, Array<float>({kGraphCount}, 1)), y(gpu, Array<float>({kGraphCount}, 0));
  constexpr int kCount = DeviceContext::kMaxSideWorks + 2;
  std::vector<std::weak_ptr<int>> kept;
  std::uint64_t last = 0;
  for (int i = 0; i < kCount; ++i) {
    auto held = std::make_shared<int>(i);
    kept.emplace_back(held);
    last = add_on_side_stream(gpu, x, y, 1, std::move(held));
  }
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(kept[static_cast<std::size_t>(i)].expired(), i < 2) << i;
  gpu.wait_for_side_stream(last - 1);
  EXPECT_TRUE(kept[kCount - 2].expired());
  EXPECT_FALSE(kept[kCount - 1].expired());
  gpu.wait_for_side_stream(last - 1);  // again, without effect
  gpu.join_side_stream();
  EXPECT_TRUE(kept[kCount - 1].expired());
  testing::expect_same_bits(y.values(), Array<float>({kGraphCount}, kCount));
}

TEST_F(CudaSideStream, KeepsScratchMemoryFromTheComputeStream) {
  for_each_gpu([](const DeviceContext& gpu) {
    const DeviceArray<float> x(gpu, values_of(1)), total(gpu, {1}), other_total(gpu, {1});
    GraphStep expected(gpu), step(gpu);
    testing::write(gpu, values_of(2), expected.x);
    testing::write(gpu, values_of(2), step.x);
    expected.enqueue();
    kernels::sum(stream_of(gpu), x.view(), total.grad());
    gpu.enqueue_on_side_stream([&](const Stream& stream) {  // both sums have scratch memory of the same size
      on(stream, [&](auto& s) {
        for (int i = 0; i < 4; ++i) kernels::sum(s, x.view(), other_total.grad());
      });
    });
    step.enqueue();
    gpu.join_side_stream();
    step.expect_equals(expected);
    testing::expect_same_bits(other_total.values(), total.values());
  });
}

TEST_F(CudaSideStream, IsCapturedWithTheComputeStream) {
  for_each_gpu([](const DeviceContext& gpu) {
    const DeviceArray<float> x(gpu, Array<float>({kGraphCount}, 1)), y(gpu, Array<float>({kGraphCount}, 0));
    const DeviceArray<float> copy(gpu, {kGraphCount});
    add_on_side_stream(gpu, x, y);  // creates the stream
    gpu.join_side_stream();
    CudaGraph graph(gpu, [&] {
      add_on_side_stream(gpu, x, y, 3);
      kernels::scale(stream_of(gpu), x.view(), 2, copy.grad());
      gpu.join_side_stream();
      kernels::scale(stream_of(gpu), y.view(), 1, copy.grad(GradMode::accumulate));
    });
    for (int i = 0; i < 2; ++i) graph.replay();
    testing::expect_same_bits(copy.values(), Array<float>({kGraphCount}, 1 + 3 * 2 + 2));
  });
}

TEST_F(CudaSideStream, IsJoinedBeforeACaptureAndAtItsEnd) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<float> x(gpu, Array<float>({kGraphCount}, 1)), y(gpu, Array<float>({kGraphCount}, 0));
  add_on_side_stream(gpu, x, y);  // creates the stream, and is pending
  CudaGraph graph(gpu, [&] {
    gpu.join_side_stream();
    add_on_side_stream(gpu, x, y);
  });
  for (int i = 0; i < 2; ++i) graph.replay();
  testing::expect_same_bits(y.values(), Array<float>({kGraphCount}, 1 + 2));
}

TEST_F(CudaSideStream, IsUsableAfterACaptureThatFailed) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<float> x(gpu, Array<float>({kGraphCount}, 1)), y(gpu, Array<float>({kGraphCount}, 0));
  add_on_side_stream(gpu, x, y);
  gpu.join_side_stream();
  const auto fail = [&] {
    add_on_side_stream(gpu, x, y);
    throw CaptureError("after work on the side stream");
  };
  EXPECT_THROW(CudaGraph(gpu, fail), CaptureError);
  EXPECT_THROW(gpu.join_side_stream(), DeviceError);
  gpu.join_side_stream();  // nothing is pending any more
  gpu.wait_for_side_stream(add_on_side_stream(gpu, x, y));
  testing::expect_same_bits(y.values(), Array<float>({kGraphCount}, 2));
}

TEST(SideStream, OfTheCpuIsTheComputeStream) {
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 1});
  int calls = 0;
  const std::uint64_t number = cpu.enqueue_on_side_stream([&](const Stream& stream) {
    EXPECT_EQ(&std::get<std::reference_wrapper<CpuStream>>(stream).get(),
              &std::get<std::reference_wrapper<CpuStream>>(cpu.stream()).get());
    ++calls;
  });
  EXPECT_EQ(number, 0u);
  EXPECT_EQ(calls, 1);
  cpu.wait_for_side_stream(number);
  cpu.join_side_stream();
}

}  // namespace
}  // namespace convoy
