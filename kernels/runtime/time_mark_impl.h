// Implementation interface of TimeMark, with one overload per kind of stream.
#pragma once

#include <memory>

#include "kernels/runtime/stream.h"
#include "kernels/runtime/time_mark.h"

namespace convoy {

/// Creates a mark for streams of the same kind and device as `stream`.
std::unique_ptr<TimeMark::Impl> make_time_mark(CpuStream& stream);
std::unique_ptr<TimeMark::Impl> make_time_mark(CudaStream& stream);

}  // namespace convoy
