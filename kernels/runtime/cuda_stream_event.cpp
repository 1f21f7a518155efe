#include "kernels/runtime/cuda_stream.h"
#include "kernels/runtime/stream_point.h"

namespace convoy {
namespace {

class CudaStreamPoint final : public StreamEvent::Point {
 public:
  explicit CudaStreamPoint(int device) : event_(device) {}

  void record(const Stream& stream) override { stream_as<CudaStream>(stream).record(event_); }
  void wait(const Stream& stream) const override { stream_as<CudaStream>(stream).wait(event_); }
  bool reached() const override { return event_.reached(); }
  void wait() const override { event_.wait(); }

 private:
  CudaEvent event_;
};

}  // namespace

std::unique_ptr<StreamEvent::Point> make_stream_point(CudaStream& stream) {
  return std::make_unique<CudaStreamPoint>(stream.device());
}

}  // namespace convoy
