// Implementation interface of Event, with one overload per kind of stream.
#pragma once

#include <functional>
#include <memory>
#include <variant>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/runtime/event.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy {

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

}  // namespace convoy
