#include "kernels/runtime/cuda_stream.h"
#include "kernels/runtime/stream_point.h"
#include "kernels/runtime/time_point.h"

namespace convoy {
namespace {

class CudaTimePoint final : public TimeMark::Point {
 public:
  explicit CudaTimePoint(int device) : event_(device, EventTiming::on) {}

  void record(const Stream& stream) override { stream_as<CudaStream>(stream).record_in_replays(event_); }
  bool reached() const override { return event_.reached(); }
  void wait() const override { event_.wait(); }
  double ms_until(const TimeMark::Point& later) const override {
    return elapsed_ms(event_, static_cast<const CudaTimePoint&>(later).event_);
  }

 private:
  CudaEvent event_;
};

}  // namespace

std::unique_ptr<TimeMark::Point> make_time_point(CudaStream& stream) {
  return std::make_unique<CudaTimePoint>(stream.device());
}

}  // namespace convoy
