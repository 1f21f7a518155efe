// Implementation interface of CudaGraph, with one overload per kind of stream.
#pragma once

#include <functional>
#include <memory>

#include "convoy/kernels/runtime/cuda_graph.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy {

/// Captures the work that `work` enqueues on `stream`, the compute stream of `device`. The CPU overload
/// throws UsageError.
std::unique_ptr<CudaGraph::Capture> capture_work(CpuStream& stream, const DeviceContext& device,
                                                 const std::function<void()>& work);
std::unique_ptr<CudaGraph::Capture> capture_work(CudaStream& stream, const DeviceContext& device,
                                                 const std::function<void()>& work);

}  // namespace convoy
