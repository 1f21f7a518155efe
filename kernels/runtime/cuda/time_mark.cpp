#include "kernels/runtime/cuda/stream.h"
#include "kernels/runtime/stream_event_impl.h"
#include "kernels/runtime/time_mark_impl.h"

namespace convoy {
namespace {

class CudaTimeMark final : public TimeMark::Impl {
 public:
  explicit CudaTimeMark(int device) : event_(device, EventTiming::on) {}

  void record(const Stream& stream) override { stream_as<CudaStream>(stream).record_in_replays(event_); }
  bool reached() const override { return event_.reached(); }
  void wait() const override { event_.wait(); }
  double ms_until(const TimeMark::Impl& later) const override {
    return elapsed_ms(event_, static_cast<const CudaTimeMark&>(later).event_);
  }

 private:
  CudaEvent event_;
};

}  // namespace

std::unique_ptr<TimeMark::Impl> make_time_mark(CudaStream& stream) {
  return std::make_unique<CudaTimeMark>(stream.device());
}

}  // namespace convoy
