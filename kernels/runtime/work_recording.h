// Behind WorkGraph: one overload a kind of device.
#pragma once

#include <functional>
#include <memory>

#include "kernels/runtime/stream.h"
#include "kernels/runtime/work_graph.h"

namespace convoy {

std::unique_ptr<WorkGraph::Recording> record_work(CpuStream& stream, const Device& device,
                                                  const std::function<void()>& record);
std::unique_ptr<WorkGraph::Recording> record_work(CudaStream& stream, const Device& device,
                                                  const std::function<void()>& record);

}  // namespace convoy
