// Behind StreamEvent: one overload a kind of stream.
#pragma once

#include <functional>
#include <memory>
#include <variant>

#include "kernels/runtime/error.h"
#include "kernels/runtime/stream.h"
#include "kernels/runtime/stream_event.h"

namespace convoy {

std::unique_ptr<StreamEvent::Point> make_stream_point(CpuStream& stream);
std::unique_ptr<StreamEvent::Point> make_stream_point(CudaStream& stream);

/// The stream, for an event or a mark of this kind of streams: CpuStream or CudaStream.
template <class Kind>
Kind& stream_as(const Stream& stream) {
  const auto* const found = std::get_if<std::reference_wrapper<Kind>>(&stream);
  if (found == nullptr)
    throw UsageError("an event or mark of the CPU's streams meets one of a GPU, or the reverse");
  return *found;
}

}  // namespace convoy
