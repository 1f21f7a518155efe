#include "kernels/runtime/work_graph.h"

#include "kernels/runtime/check.h"
#include "kernels/runtime/work_recording.h"

namespace convoy {

// Work on the CPU runs when it is called for, so there is nothing to record.
std::unique_ptr<WorkGraph::Recording> record_work(CpuStream&, const Device& device,
                                                  const std::function<void()>&) {
  fail<UsageError>("{}: work graphs are for GPUs", device.name());
}

bool WorkGraph::supported(const Device& device) { return device.kind() == DeviceKind::cuda; }

WorkGraph::WorkGraph(const Device& device, const std::function<void()>& record)
    : device_(device),
      recording_(on(device.stream(), [&](auto& stream) { return record_work(stream, device, record); })) {}

WorkGraph::~WorkGraph() = default;

void WorkGraph::replay() { recording_->replay(); }

std::size_t WorkGraph::pool_bytes() const { return recording_->pool_bytes(); }

}  // namespace convoy
