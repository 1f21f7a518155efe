#include <cuda_runtime_api.h>

#include <exception>

#include "kernels/runtime/check.h"
#include "kernels/runtime/cuda_check.h"
#include "kernels/runtime/cuda_stream.h"
#include "kernels/runtime/work_recording.h"

namespace convoy {
namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using Graph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

struct DestroyExecutable {
  void operator()(cudaGraphExec_t executable) const { cudaGraphExecDestroy(executable); }
};
using Executable = std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, DestroyExecutable>;

/// Any error of a device or its libraries means here that the work cannot be recorded; others are the work's
/// own.
[[noreturn]] void rethrow(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const CaptureError&) {
    throw;
  } catch (const DeviceError& error) {
    throw CaptureError(error.what());
  }
}

/// What `record` enqueues on the stream, and on others that join it.
Graph capture(CudaStream& stream, const std::function<void()>& record) {
  stream.make_current();
  // Relaxed, because the allocator calls cudaMalloc on this thread where its cache has no block left. The
  // other modes forbid that, lest a program counts on a replay to allocate once more; here the pools keep the
  // one block for all replays. (Other threads' calls are their own affair in this mode, too.)
  CUDA_CHECK(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeRelaxed));
  std::exception_ptr failure;
  try {
    record();
  } catch (...) {
    failure = std::current_exception();
  }
  cudaSetDevice(stream.device());  // `record` may have chosen another
  cudaGraph_t graph = nullptr;
  const cudaError_t status = cudaStreamEndCapture(stream.handle(), &graph);
  Graph held(graph);
  cudaGetLastError();  // said here; not again at the next call
  if (failure) rethrow(failure);
  if (status == cudaErrorStreamCaptureUnjoined)
    throw CaptureError("another stream's part of the recorded work is not waited for at its end");
  if (status == cudaErrorStreamCaptureInvalidated)
    throw CaptureError("a call that cannot be recorded, whose error nobody looked at");
  CUDA_CHECK(status);
  return held;
}

Executable instantiate(cudaGraph_t graph, CudaStream& stream) {
  cudaGraphExec_t executable = nullptr;
  try {
    CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
    Executable held(executable);
    CUDA_CHECK(cudaGraphUpload(executable, stream.handle()));  // now, and not in the first replay
    return held;
  } catch (const DeviceError& error) {  // too large for what memory is left, for one
    cudaGetLastError();
    throw CaptureError(error.what());
  }
}

class CudaRecording final : public WorkGraph::Recording {
 public:
  CudaRecording(CudaStream& stream, const Device& device, const std::function<void()>& record)
      : stream_(stream), memory_(device.memory()), staging_(device.staging()), replayed_(stream.device()) {
    check(!stream.is_capturing(), "{}: a recording inside another", device.name());
    const MemoryPool::Scope memory(memory_), staging(staging_);
    const Graph graph = capture(stream, record);
    executable_ = instantiate(graph.get(), stream);
  }
  ~CudaRecording() override {
    try {
      replayed_.wait();
    } catch (const Error&) {  // a GPU that has failed replays nothing more
    }
  }

  void replay() override {
    if (stream_.is_capturing()) throw CaptureError("a replay inside recorded work");
    CUDA_CHECK(cudaGraphLaunch(executable_.get(), stream_.handle()));
    stream_.record(replayed_);
  }
  std::size_t pool_bytes() const override { return memory_.bytes(); }

 private:
  CudaStream& stream_;
  MemoryPool memory_, staging_;
  CudaEvent replayed_;  // the last one
  Executable executable_;
};

}  // namespace

std::unique_ptr<WorkGraph::Recording> record_work(CudaStream& stream, const Device& device,
                                                  const std::function<void()>& record) {
  return std::make_unique<CudaRecording>(stream, device, record);
}

}  // namespace convoy
