#include "kernels/runtime/cuda_stream.h"
#include "kernels/runtime/time_point.h"

namespace convoy {
namespace {

class CudaTimePoint final : public TimeMark::Point {
 public:
  explicit CudaTimePoint(CudaStream& stream) : stream_(stream), event_(stream.device(), EventTiming::on) {}

  void record() override { stream_.record_in_replays(event_); }
  bool reached() const override { return event_.reached(); }
  void wait() const override { event_.wait(); }
  double ms_until(const TimeMark::Point& later) const override {
    return elapsed_ms(event_, static_cast<const CudaTimePoint&>(later).event_);
  }

 private:
  CudaStream& stream_;
  CudaEvent event_;
};

}  // namespace

std::unique_ptr<TimeMark::Point> make_time_point(CudaStream& stream) {
  return std::make_unique<CudaTimePoint>(stream);
}

}  // namespace convoy
