#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/per_device.h"

namespace convoy {
namespace {

class CudaStreamEvent final : public Event::Impl {
 public:
  CudaStreamEvent(int device, bool timed)
      : device_(device), timed_(timed), event_(device, timed ? EventTiming::on : EventTiming::off) {}

  void record(const Stream& stream) override {
    CudaStream& cuda = stream_as<CudaStream>(stream);
    timed_ ? cuda.record_in_replays(event_) : cuda.record(event_);
  }
  void wait(const Stream& stream) const override {
    CudaStream& cuda = stream_as<CudaStream>(stream);
    if (timed_ && cuda.is_capturing())
      throw CaptureError("a stream cannot wait for a timed event in a capture; use an event without timing");
    cuda.wait(event_);
  }
  bool reached() const override { return event_.reached(); }
  void wait() const override { event_.wait(); }
  Device device() const override { return Device::cuda(device_); }
  double ms_until(const Event::Impl& later) const override {
    return elapsed_ms(event_, static_cast<const CudaStreamEvent&>(later).event_);
  }

 private:
  int device_;
  bool timed_;
  CudaEvent event_;
};

}  // namespace

std::unique_ptr<Event::Impl> make_event(CudaStream& stream, bool timed) {
  return std::make_unique<CudaStreamEvent>(stream.device(), timed);
}

}  // namespace convoy
