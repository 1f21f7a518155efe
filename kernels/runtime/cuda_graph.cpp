#include "convoy/kernels/runtime/cuda_graph.h"

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/per_device.h"

namespace convoy {

// The compute stream of the CPU runs its work immediately, so there is nothing to capture.
std::unique_ptr<CudaGraph::Capture> capture_work(CpuStream&, const DeviceContext& device,
                                                 const std::function<void()>&) {
  fail<UsageError>("{}: cannot capture a CUDA graph on this device, expected a GPU", device.name());
}

bool CudaGraph::supported(const DeviceContext& device) { return device.kind() == DeviceKind::cuda; }

CudaGraph::CudaGraph(const DeviceContext& device, const std::function<void()>& work)
    : device_(device),
      capture_(on(device.stream(), [&](auto& stream) { return capture_work(stream, device, work); })) {}

CudaGraph::~CudaGraph() = default;

void CudaGraph::replay() { capture_->replay(); }

std::size_t CudaGraph::pool_bytes() const { return capture_->pool_bytes(); }

}  // namespace convoy
