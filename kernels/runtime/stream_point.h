// Behind StreamEvent: one overload a kind of stream.
#pragma once

#include <memory>

#include "kernels/runtime/stream.h"
#include "kernels/runtime/stream_event.h"

namespace convoy {

std::unique_ptr<StreamEvent::Point> make_stream_point(CpuStream& stream);
std::unique_ptr<StreamEvent::Point> make_stream_point(CudaStream& stream);

}  // namespace convoy
