#include "kernels/runtime/stream_event.h"

#include "kernels/runtime/stream_point.h"

namespace convoy {
namespace {

class CpuStreamPoint final : public StreamEvent::Point {
 public:
  void record(const Stream& stream) override { stream_as<CpuStream>(stream).record(event_); }
  void wait(const Stream& stream) const override { stream_as<CpuStream>(stream).wait(event_); }
  bool reached() const override { return event_.reached(); }
  void wait() const override { event_.wait(); }

 private:
  CpuEvent event_;
};

}  // namespace

std::unique_ptr<StreamEvent::Point> make_stream_point(CpuStream&) {
  return std::make_unique<CpuStreamPoint>();
}

StreamEvent::StreamEvent(const Stream& of)
    : point_(on(of, [](auto& stream) { return make_stream_point(stream); })) {}

void StreamEvent::record(const Stream& stream) { point_->record(stream); }
void StreamEvent::wait(const Stream& stream) const { point_->wait(stream); }
bool StreamEvent::reached() const { return point_->reached(); }
void StreamEvent::wait() const { point_->wait(); }

}  // namespace convoy
