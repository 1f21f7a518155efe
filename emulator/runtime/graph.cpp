// Graphs: the part of Driver that handles them, and the functions of the CUDA runtime.
#include <utility>

#include "emulator/runtime/driver.h"
#include "emulator/runtime/runtime.h"

namespace convoy::emulator {

cudaError_t Driver::begin_capture(EmulatedStream& stream, cudaStreamCaptureMode mode) {
  if (stream.capture != nullptr) return cudaErrorIllegalState;
  Capture::begin(stream, mode);
  return cudaSuccess;
}

cudaError_t Driver::end_capture(EmulatedStream& stream, cudaGraph_t* graph) {
  *graph = nullptr;
  std::shared_ptr<EmulatedGraph> captured;
  const cudaError_t status = Capture::end(stream, captured);
  if (status == cudaSuccess) {
    *graph = captured.get();
    graphs_.emplace(*graph, std::move(captured));
  }
  return status;
}

/// Invalidates every capture that satisfies `is_violated`. Returns whether there was one.
bool Driver::invalidate_if(const std::function<bool(const Capture&)>& is_violated) {
  bool any = false;
  for (const auto& stream : streams_) {
    if (stream->capture == nullptr || !is_violated(*stream->capture)) continue;
    stream->capture->invalidate();
    any = true;
  }
  return any;
}

/// Global captures forbid allocation to every thread, thread-local ones to their own thread, relaxed ones to
/// none.
bool Driver::forbids_allocation() {
  return invalidate_if([](const Capture& capture) {
    return capture.mode() == cudaStreamCaptureModeGlobal ||
           (capture.mode() == cudaStreamCaptureModeThreadLocal &&
            capture.thread() == std::this_thread::get_id());
  });
}

/// Freeing memory waits for the GPU's work, which cannot be waited for while it is captured. CUDA permits it
/// in relaxed captures; no program should rely on that, so the emulator does not.
bool Driver::forbids_release() {
  return invalidate_if([](const Capture& capture) {
    return capture.mode() == cudaStreamCaptureModeGlobal || capture.thread() == std::this_thread::get_id();
  });
}

EmulatedGraphExec* Driver::instantiate(cudaGraph_t graph) {
  const auto found = graphs_.find(graph);
  if (found == graphs_.end()) return nullptr;
  auto executable = std::make_unique<EmulatedGraphExec>();
  executable->graph = found->second;
  EmulatedGraphExec* const handle = executable.get();
  executables_.emplace(handle, std::move(executable));
  return handle;
}

EmulatedGraphExec* Driver::find(cudaGraphExec_t executable) const {
  const auto found = executables_.find(executable);
  return found != executables_.end() ? found->second.get() : nullptr;
}

void Driver::launch(EmulatedStream& stream, EmulatedGraphExec& executable) {
  const std::shared_ptr<const EmulatedGraph> graph = executable.graph;
  wait(stream, executable.done);
  std::vector<std::size_t> order;
  for (std::size_t node = 0; node < graph->nodes.size(); ++node) order.push_back(node);
  if (settings.streams == Streams::random) order = graph->random_order(random_);
  for (const std::size_t index : order) {
    const EmulatedGraph::Node& node = graph->nodes[index];
    if (node.event != nullptr) {
      record(stream, node.event);
    } else {
      // Keeps the graph alive: it may be destroyed before its work has run.
      push(stream, [this, graph, &node, operation = checked(stream, "graph")] {
        replayed_ = operation;
        const bool is_done = node.work();
        replayed_ = nullptr;
        return is_done;
      });
    }
  }
  record(stream, executable.done);
}

}  // namespace convoy::emulator

using namespace convoy::emulator;  // NOLINT: the names below are those of the C API

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return on_stream(stream,
                   [&](Driver& driver, EmulatedStream& held) { return driver.begin_capture(held, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return on_any_stream(stream,
                       [&](Driver& driver, EmulatedStream& held) { return driver.end_capture(held, graph); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return on_any_stream(stream, [&](Driver&, EmulatedStream& held) {
    *status = held.capture == nullptr    ? cudaStreamCaptureStatusNone
              : held.capture->is_valid() ? cudaStreamCaptureStatusActive
                                         : cudaStreamCaptureStatusInvalidated;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  if (flags != 0) return cudaErrorInvalidValue;
  return on_gpu([&](Driver& driver, int) {
    *executable = driver.instantiate(graph);
    return *executable != nullptr ? cudaSuccess : cudaErrorInvalidValue;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call(
      [&](Driver& driver) { return driver.remove_graph(graph) ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t stream) {
  return on_stream(stream, [&](Driver& driver, EmulatedStream& held) {
    if (held.capture != nullptr) return unsupported(*held.capture);
    return driver.find(executable) != nullptr ? cudaSuccess : cudaErrorInvalidValue;
  });
}

// In CUDA, the launch becomes a node of the capturing graph. Convoy does not use this, so it is not emulated.
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return on_stream(stream, [&](Driver& driver, EmulatedStream& held) {
    if (held.capture != nullptr) return unsupported(*held.capture);
    EmulatedGraphExec* const found = driver.find(executable);
    if (found == nullptr) return cudaErrorInvalidValue;
    driver.launch(held, *found);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return call([&](Driver& driver) {
    return driver.remove_executable(executable) ? cudaSuccess : cudaErrorInvalidValue;
  });
}
