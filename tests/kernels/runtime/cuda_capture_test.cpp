// Work that cannot be captured: the error messages, and that the device stays usable.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convoy/kernels/runtime/cuda_graph.h"
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
using ::testing::HasSubstr;

constexpr std::int64_t kCount = testing::kGraphCount;

/// Tests of captures that fail.
class CudaCapture : public testing::GraphTest {
 protected:
  /// Expects that capturing `work` throws a CaptureError with `message`, and that the GPU can then run and
  /// capture work.
  void expect_capture_error(const std::function<void(const DeviceContext&)>& work, const char* message) {
    SCOPED_TRACE(message);
    for_each_gpu([&](const DeviceContext& gpu) {
      const DeviceArray<float> y(gpu, Array<float>({kCount}, -1));
      try {
        const CudaGraph graph(gpu, [&] {
          const DeviceArray<float> scratch(gpu, {kCount});
          kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, y.view(), scratch.view());
          kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, scratch.view(), y.view());
          work(gpu);
        });
        ADD_FAILURE() << "no exception";
      } catch (const CaptureError& error) {
        EXPECT_THAT(error.what(), HasSubstr(message));
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
      }
      expect_usable(gpu, y);
    });
  }
  static void expect_usable(const DeviceContext& gpu, const DeviceArray<float>& y) {
    expect_same_bits(y.values(), Array<float>({kCount}, -1));
    EXPECT_FALSE(stream_of(gpu).is_capturing());
    EXPECT_EQ(gpu.memory().stats().in_pools, 0u);
    const Step eager(gpu), captured(gpu);
    write(gpu, values_of(1), eager.x);
    write(gpu, values_of(1), captured.x);
    eager.enqueue();
    CudaGraph graph(gpu, [&] { captured.enqueue(); });
    graph.replay();
    captured.expect_equals(eager);
  }
};

TEST_F(CudaCapture, RethrowsErrorsOfTheWork) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<float> y(gpu, Array<float>({kCount}, -1));
  EXPECT_THROW(CudaGraph(gpu,
                         [&] {
                           kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, y.view(), y.view());
                           throw NumericError("not a number");
                         }),
               NumericError);
  expect_usable(gpu, y);
}

TEST_F(CudaCapture, RejectsHostSynchronization) {
  expect_capture_error([](const DeviceContext& gpu) { gpu.synchronize(); },
                       "cannot capture a synchronization of the host with the stream");
}

TEST_F(CudaCapture, RejectsBlockingCopies) {
  expect_capture_error(
      [](const DeviceContext& gpu) {
        const DeviceArray<float> x(gpu, {kCount});
        x.values();
      },
      "cannot capture a blocking copy between a GPU and the host");
}

TEST_F(CudaCapture, RejectsCopiesFromPageableMemory) {
  expect_capture_error(
      [](const DeviceContext& gpu) {
        const DeviceArray<float> x(gpu, {kCount});
        const Array<float> host({kCount}, 1);
        copy_bytes_async(Device::cpu(), host.view(), gpu, x.view());
      },
      "host memory that is not its staging memory");
}

TEST_F(CudaCapture, RejectsHostQueriesOfCapturedEvents) {
  const auto with_captured_event = [](const DeviceContext& gpu, const auto& query) {
    CudaEvent event(0);
    stream_of(gpu).record(event);
    query(event);
  };
  expect_capture_error(
      [&](const DeviceContext& gpu) {
        with_captured_event(gpu, [](const CudaEvent& event) { event.wait(); });
      },
      "cudaErrorCapturedEvent");
  expect_capture_error(
      [&](const DeviceContext& gpu) {
        with_captured_event(gpu, [](const CudaEvent& event) { event.reached(); });
      },
      "cudaErrorCapturedEvent");
}

TEST_F(CudaCapture, RejectsAllocationsThatAreTooLarge) {
  expect_capture_error([](const DeviceContext& gpu) { gpu.memory().allocate(std::size_t{1} << 50); },
                       "out of memory on cuda:0: asked for 1024.00 TiB");
}

TEST_F(CudaCapture, RejectsWaitsForWorkOutsideTheCapture) {
  expect_capture_error(
      [](const DeviceContext& gpu) {
        CudaStream side(0, gpu.memory());
        CudaEvent event(0);
        side.record(event);
        stream_of(gpu).wait(event);
      },
      "cudaErrorStreamCaptureIsolation");
}

TEST_F(CudaCapture, RejectsAForkedStreamWithoutAJoin) {
  std::vector<std::unique_ptr<CudaStream>> sides;  // must outlive the capture
  expect_capture_error(
      [&](const DeviceContext& gpu) {
        CudaStream& side = *sides.emplace_back(std::make_unique<CudaStream>(0, gpu.memory()));
        CudaEvent fork(0);
        stream_of(gpu).record(fork);
        side.wait(fork);
        const DeviceArray<float> x(gpu, {kCount});
        kernels::unary_forward(side, kernels::UnaryOp::relu, x.view(), x.view());
      },
      "the captured stream does not wait for the captured work of another stream");
}

TEST_F(CudaCapture, RejectsIgnoredErrors) {
  expect_capture_error(
      [](const DeviceContext& gpu) {
        CudaEvent event(0);
        stream_of(gpu).record(event);
        try {
          event.wait();
        } catch (const DeviceError&) {
        }
      },
      "a call that cannot be captured invalidated the capture, and its error was ignored");
}

TEST_F(CudaCapture, RejectsReplaysAndNestedCaptures) {
  for_each_order([] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<float> y(gpu, Array<float>({kCount}, -1));
    CudaGraph inner(
        gpu, [&] { kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, y.view(), y.view()); });
    EXPECT_THROW(CudaGraph(gpu, [&] { inner.replay(); }), CaptureError);
    EXPECT_THROW(CudaGraph(gpu, [&] { CudaGraph(gpu, [] {}); }), UsageError);
    expect_usable(gpu, y);
    inner.replay();
    expect_same_bits(y.values(), Array<float>({kCount}, 0));
  });
}

TEST_F(CudaCapture, AllowsDestructionOfAnotherGraph) {
  for_each_gpu([](const DeviceContext& gpu) {
    const Step eager(gpu), captured(gpu);
    write(gpu, values_of(1), eager.x);
    write(gpu, values_of(1), captured.x);
    auto old = std::make_unique<CudaGraph>(gpu, [&] { eager.enqueue(); });
    old->replay();
    CudaGraph graph(gpu, [&] {
      old.reset();
      captured.enqueue();
    });
    graph.replay();
    captured.expect_equals(eager);
  });
}

}  // namespace
}  // namespace convoy
