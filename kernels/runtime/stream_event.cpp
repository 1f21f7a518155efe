#include "kernels/runtime/stream_event.h"

#include "kernels/runtime/stream_event_impl.h"

namespace convoy {
namespace {

class CpuStreamEvent final : public StreamEvent::Impl {
 public:
  void record(const Stream& stream) override { stream_as<CpuStream>(stream).record(event_); }
  void wait(const Stream& stream) const override { stream_as<CpuStream>(stream).wait(event_); }
  bool reached() const override { return event_.reached(); }
  void wait() const override { event_.wait(); }

 private:
  CpuEvent event_;
};

}  // namespace

std::unique_ptr<StreamEvent::Impl> make_stream_event(CpuStream&) {
  return std::make_unique<CpuStreamEvent>();
}

StreamEvent::StreamEvent(const Stream& prototype)
    : impl_(on(prototype, [](auto& stream) { return make_stream_event(stream); })) {}

void StreamEvent::record(const Stream& stream) { impl_->record(stream); }
void StreamEvent::wait(const Stream& stream) const { impl_->wait(stream); }
bool StreamEvent::reached() const { return impl_->reached(); }
void StreamEvent::wait() const { impl_->wait(); }

}  // namespace convoy
