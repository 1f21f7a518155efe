// Behind TimeMark: one overload a kind of device.
#pragma once

#include <memory>

#include "kernels/runtime/stream.h"
#include "kernels/runtime/time_mark.h"

namespace convoy {

std::unique_ptr<TimeMark::Point> make_time_point(CpuStream& stream);
std::unique_ptr<TimeMark::Point> make_time_point(CudaStream& stream);

}  // namespace convoy
