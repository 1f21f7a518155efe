#include "kernels/runtime/cuda/stream.h"
#include "kernels/runtime/stream_event_impl.h"

namespace convoy {
namespace {

class CudaStreamEvent final : public StreamEvent::Impl {
 public:
  explicit CudaStreamEvent(int device) : event_(device) {}

  void record(const Stream& stream) override { stream_as<CudaStream>(stream).record(event_); }
  void wait(const Stream& stream) const override { stream_as<CudaStream>(stream).wait(event_); }
  bool reached() const override { return event_.reached(); }
  void wait() const override { event_.wait(); }

 private:
  CudaEvent event_;
};

}  // namespace

std::unique_ptr<StreamEvent::Impl> make_stream_event(CudaStream& stream) {
  return std::make_unique<CudaStreamEvent>(stream.device());
}

}  // namespace convoy
