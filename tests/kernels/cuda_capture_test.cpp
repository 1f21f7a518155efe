// Work that cannot be recorded: what is said of it, and that nothing else suffers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/runtime/work_graph.h"
#include "tests/kernels/graph_fixture.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::expect_same_bits;
using testing::stream_of;
using testing::values_of;
using testing::write;
using Step = testing::GraphStep;
using ::testing::HasSubstr;

constexpr std::int64_t kCount = testing::kGraphCount;

/// Ways for a recording to fail.
class CudaCapture : public testing::GraphTest {
 protected:
  /// The message of a CaptureError; afterwards the GPU works, and records, as before.
  void expect_unrecordable(const std::function<void(const Device&)>& record, const char* message) {
    SCOPED_TRACE(message);
    for_each_gpu([&](const Device& gpu) {
      const DeviceArray<float> y(gpu, Array<float>({kCount}, -1));
      try {
        const WorkGraph graph(gpu, [&] {
          const DeviceArray<float> scratch(gpu, {kCount});
          relu_forward(stream_of(gpu), y.view(), scratch.view());
          relu_forward(stream_of(gpu), scratch.view(), y.view());
          record(gpu);
        });
        ADD_FAILURE() << "recorded";
      } catch (const CaptureError& error) {
        EXPECT_THAT(error.what(), HasSubstr(message));
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      }
      expect_usable(gpu, y);
    });
  }
  static void expect_usable(const Device& gpu, const DeviceArray<float>& y) {
    expect_same_bits(y.values(), Array<float>({kCount}, -1));
    EXPECT_FALSE(stream_of(gpu).is_capturing());
    EXPECT_EQ(gpu.memory().stats().in_pools, 0u);
    const Step at_once(gpu), recorded(gpu);
    write(gpu, values_of(1), at_once.x);
    write(gpu, values_of(1), recorded.x);
    at_once.enqueue();
    WorkGraph graph(gpu, [&] { recorded.enqueue(); });
    graph.replay();
    recorded.expect_equals(at_once);
  }
};

TEST_F(CudaCapture, AnErrorOfTheWorksOwnComesThrough) {
  const Device gpu = Device::cuda(0);
  const DeviceArray<float> y(gpu, Array<float>({kCount}, -1));
  EXPECT_THROW(WorkGraph(gpu,
                         [&] {
                           relu_forward(stream_of(gpu), y.view(), y.view());
                           throw NumericError("not a number");
                         }),
               NumericError);
  expect_usable(gpu, y);
}

TEST_F(CudaCapture, AHostWait) {
  expect_unrecordable([](const Device& gpu) { gpu.synchronize(); }, "a host wait inside recorded work");
}

TEST_F(CudaCapture, ACopyThatTheHostWaitsFor) {
  expect_unrecordable(
      [](const Device& gpu) {
        const DeviceArray<float> x(gpu, {kCount});
        x.values();
      },
      "a copy between a GPU and the host that the host waits for");
}

TEST_F(CudaCapture, ACopyFromMemoryThatIsNotPinned) {
  expect_unrecordable(
      [](const Device& gpu) {
        const DeviceArray<float> x(gpu, {kCount});
        const Array<float> host({kCount}, 1);
        copy_bytes_async(Device::cpu(), host.view(), gpu, x.view());
      },
      "host memory that is not its staging memory");
}

TEST_F(CudaCapture, AnEventThatTheHostAsksFor) {
  const auto recorded_event = [](const Device& gpu, const auto& ask) {
    CudaEvent event(0);
    stream_of(gpu).record(event);
    ask(event);
  };
  expect_unrecordable(
      [&](const Device& gpu) { recorded_event(gpu, [](const CudaEvent& event) { event.wait(); }); },
      "cudaErrorCapturedEvent");
  expect_unrecordable(
      [&](const Device& gpu) { recorded_event(gpu, [](const CudaEvent& event) { event.reached(); }); },
      "cudaErrorCapturedEvent");
}

TEST_F(CudaCapture, AnAllocationThatIsTooLarge) {
  expect_unrecordable([](const Device& gpu) { gpu.memory().allocate(std::size_t{1} << 50); },
                      "out of memory on cuda:0: asked for 1024.00 TiB");
}

TEST_F(CudaCapture, AWaitForWorkThatIsNotRecorded) {
  expect_unrecordable(
      [](const Device& gpu) {
        CudaStream side(0, gpu.memory());
        CudaEvent event(0);
        side.record(event);
        stream_of(gpu).wait(event);
      },
      "cudaErrorStreamCaptureIsolation");
}

TEST_F(CudaCapture, AnotherStreamsPartThatNobodyWaitsFor) {
  std::vector<std::unique_ptr<CudaStream>> sides;  // which the recording may not end
  expect_unrecordable(
      [&](const Device& gpu) {
        CudaStream& side = *sides.emplace_back(std::make_unique<CudaStream>(0, gpu.memory()));
        CudaEvent fork(0);
        stream_of(gpu).record(fork);
        side.wait(fork);
        const DeviceArray<float> x(gpu, {kCount});
        relu_forward(side, x.view(), x.view());
      },
      "another stream's part of the recorded work is not waited for at its end");
}

TEST_F(CudaCapture, AnErrorThatNobodyLookedAt) {
  expect_unrecordable(
      [](const Device& gpu) {
        CudaEvent event(0);
        stream_of(gpu).record(event);
        try {
          event.wait();
        } catch (const DeviceError&) {
        }
      },
      "a call that cannot be recorded, whose error nobody looked at");
}

TEST_F(CudaCapture, AReplayInsideARecording) {
  for_each_order([] {
    const Device gpu = Device::cuda(0);
    const DeviceArray<float> y(gpu, Array<float>({kCount}, -1));
    WorkGraph inner(gpu, [&] { relu_forward(stream_of(gpu), y.view(), y.view()); });
    EXPECT_THROW(WorkGraph(gpu, [&] { inner.replay(); }), CaptureError);
    EXPECT_THROW(WorkGraph(gpu, [&] { WorkGraph(gpu, [] {}); }), UsageError);
    expect_usable(gpu, y);
    inner.replay();
    expect_same_bits(y.values(), Array<float>({kCount}, 0));
  });
}

TEST_F(CudaCapture, ADestructorInsideARecordingHurtsNobody) {
  for_each_gpu([](const Device& gpu) {
    const Step at_once(gpu), recorded(gpu);
    write(gpu, values_of(1), at_once.x);
    write(gpu, values_of(1), recorded.x);
    auto old = std::make_unique<WorkGraph>(gpu, [&] { at_once.enqueue(); });
    old->replay();
    WorkGraph graph(gpu, [&] {
      old.reset();
      recorded.enqueue();
    });
    graph.replay();
    recorded.expect_equals(at_once);
  });
}

}  // namespace
}  // namespace convoy
