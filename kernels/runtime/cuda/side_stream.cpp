#include "convoy/kernels/runtime/cuda/side_stream.h"

#include "convoy/kernels/base/error.h"

namespace convoy {

SideStream::SideStream(CudaStream& compute)
    : compute_(compute),
      stream_(compute.device(), compute.memory(),
              {.priority = StreamPriority::low,
               .cuda = compute.cuda_options(),
               .algorithms = &compute.algorithm_cache(),
               .side_of = &compute}),
      ready_(compute.device()) {
  stream_.set_autotune(compute.autotune_is_enabled());
  for (std::unique_ptr<CudaEvent>& event : done_) event = std::make_unique<CudaEvent>(compute.device());
}

std::uint64_t SideStream::enqueue(std::function<void(const Stream&)> work) {
  if (pending_.size() >= DeviceContext::kMaxSideWorks) wait(enqueued_ + 1 - DeviceContext::kMaxSideWorks);
  compute_.record(ready_);
  stream_.wait(ready_);
  work(std::ref(stream_));
  ++enqueued_;
  stream_.record(done(enqueued_));
  pending_.push_back({std::move(work), stream_.take_released()});
  return enqueued_;
}

void SideStream::wait(std::uint64_t number) {
  const std::uint64_t first = enqueued_ + 1 - pending_.size();
  if (number < first) return;
  compute_.wait(done(number));
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(number - first + 1));
}

void SideStream::let_wait(CudaStream& other) {
  if (!pending_.empty()) other.wait(done(enqueued_));
}

void SideStream::end() {
  try {
    wait(enqueued_);
  } catch (const Error&) {
    pending_.clear();
    throw;
  }
}

}  // namespace convoy
