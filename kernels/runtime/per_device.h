// Implementation interfaces of CudaGraph, Event and Uploader, with one overload per kind of stream.
#pragma once

#include <functional>
#include <memory>
#include <variant>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "convoy/kernels/runtime/event.h"
#include "convoy/kernels/runtime/stream.h"
#include "convoy/kernels/runtime/upload.h"

namespace convoy {

/// Captures the work that `work` enqueues on `stream`, the compute stream of `device`. The CPU overload
/// throws UsageError.
std::unique_ptr<CudaGraph::Capture> capture_work(CpuStream& stream, const DeviceContext& device,
                                                 const std::function<void()>& work);
std::unique_ptr<CudaGraph::Capture> capture_work(CudaStream& stream, const DeviceContext& device,
                                                 const std::function<void()>& work);

/// Creates an event for streams of the same kind and device as `stream`.
std::unique_ptr<Event::Impl> make_event(CpuStream& stream, bool timed);
std::unique_ptr<Event::Impl> make_event(CudaStream& stream, bool timed);

/// Returns the stream as a CpuStream or CudaStream. Throws UsageError if it is of another kind.
template <class Kind>
Kind& stream_as(const Stream& stream) {
  const auto* const found = std::get_if<std::reference_wrapper<Kind>>(&stream);
  if (found == nullptr)
    throw UsageError("an event of a CPU stream was used with a GPU stream, or the reverse");
  return *found;
}

/// Creates an uploader for the device whose compute stream is `compute`.
std::unique_ptr<Uploader::Impl> make_uploader(CpuStream& compute);
std::unique_ptr<Uploader::Impl> make_uploader(CudaStream& compute);

}  // namespace convoy
