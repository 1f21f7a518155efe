// Implementation interface of StreamEvent, with one overload per kind of stream.
#pragma once

#include <functional>
#include <memory>
#include <variant>

#include "kernels/base/error.h"
#include "kernels/runtime/stream.h"
#include "kernels/runtime/stream_event.h"

namespace convoy {

/// Creates an event for streams of the same kind and device as `stream`.
std::unique_ptr<StreamEvent::Impl> make_stream_event(CpuStream& stream);
std::unique_ptr<StreamEvent::Impl> make_stream_event(CudaStream& stream);

/// Returns the stream as a CpuStream or CudaStream. Throws UsageError if it is of the other kind.
template <class Kind>
Kind& stream_as(const Stream& stream) {
  const auto* const found = std::get_if<std::reference_wrapper<Kind>>(&stream);
  if (found == nullptr)
    throw UsageError("an event or time mark of a CPU stream was used with a GPU stream, or the reverse");
  return *found;
}

}  // namespace convoy
