#include <cuda_runtime_api.h>

#include <exception>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/cuda/check.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/per_device.h"

namespace convoy {
namespace {

using Graph = Owned<cudaGraph_t, cudaGraphDestroy>;
using Executable = Owned<cudaGraphExec_t, cudaGraphExecDestroy>;

/// Rethrows an error of the captured code. A DeviceError becomes a CaptureError, because during a capture it
/// means that the work cannot be captured. Other errors are rethrown unchanged.
[[noreturn]] void rethrow(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const CaptureError&) {
    throw;
  } catch (const DeviceError& error) {
    throw CaptureError(error.what());
  }
}

/// Returns a graph of the work that `work` enqueues on the stream and on the streams that join it.
Graph capture(CudaStream& stream, const std::function<void()>& work) {
  stream.make_current();
  // The relaxed mode permits cudaMalloc on this thread, which the allocator calls if its cache has no free
  // block. The other modes forbid it, because a replay does not allocate again. Here this is safe: the memory
  // pools keep each block for all replays. The relaxed mode also leaves calls of other threads unrestricted.
  CUDA_CHECK(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeRelaxed));
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  cudaSetDevice(stream.device());  // `work` may have made another GPU current
  cudaGraph_t graph = nullptr;
  const cudaError_t status = cudaStreamEndCapture(stream.handle(), &graph);
  Graph held(graph);
  cudaGetLastError();  // clears the error, which is reported here
  if (failure) rethrow(failure);
  if (status == cudaErrorStreamCaptureUnjoined)
    throw CaptureError(
        "the captured stream does not wait for the captured work of another stream; wait for an event of it");
  if (status == cudaErrorStreamCaptureInvalidated)
    throw CaptureError("a call that cannot be captured invalidated the capture, and its error was ignored");
  CUDA_CHECK(status);
  return held;
}

Executable instantiate(cudaGraph_t graph, CudaStream& stream) {
  cudaGraphExec_t executable = nullptr;
  try {
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    Executable held(executable);
    CUDA_CHECK(cudaGraphUpload(executable, stream.handle()));  // otherwise the first replay would upload it
    return held;
  } catch (const DeviceError& error) {  // for example, too little free memory
    cudaGetLastError();
    throw CaptureError(error.what());
  }
}

class CudaCapture final : public CudaGraph::Capture {
 public:
  CudaCapture(CudaStream& stream, const DeviceContext& device, const std::function<void()>& work)
      : stream_(stream), memory_(device.memory()), staging_(device.staging()), replayed_(stream.device()) {
    check(!stream.is_capturing(), "{}: cannot begin a capture while the compute stream is capturing",
          device.name());
    device.join_side_stream();  // captured work cannot wait for work before the capture
    const MemoryPool::Scope memory(memory_), staging(staging_);
    const Graph graph = capture(stream, [&] {
      work();
      device.join_side_stream();
    });
    executable_ = instantiate(graph.get(), stream);
  }
  ~CudaCapture() override {
    try {
      replayed_.wait();
    } catch (const Error&) {  // a GPU that has failed runs no more replays
    }
  }

  void replay() override {
    if (stream_.is_capturing()) throw CaptureError("cannot capture a replay of another CUDA graph");
    CUDA_CHECK(cudaGraphLaunch(executable_.get(), stream_.handle()));
    stream_.record(replayed_);
  }
  std::size_t pool_bytes() const override { return memory_.bytes(); }

 private:
  CudaStream& stream_;
  MemoryPool memory_, staging_;
  CudaEvent replayed_;  // the end of the last replay
  Executable executable_;
};

}  // namespace

std::unique_ptr<CudaGraph::Capture> capture_work(CudaStream& stream, const DeviceContext& device,
                                                 const std::function<void()>& work) {
  return std::make_unique<CudaCapture>(stream, device, work);
}

}  // namespace convoy
