#include "convoy/kernels/runtime/event.h"

#include <chrono>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/per_device.h"
#include "convoy/kernels/runtime/stream_wait.h"

namespace convoy {
namespace {

using Clock = std::chrono::steady_clock;

/// An event whose stream reads the clock, timed or not. An inline stream reads it at once. A stream with a worker
/// thread reads it when the thread reaches the event.
class CpuStreamEvent final : public Event::Impl {
 public:
  void record(const Stream& stream) override {
    CpuStream& cpu = stream_as<CpuStream>(stream);
    latest_ = std::make_shared<Reading>();  // a new object, because an earlier reading may still be queued
    cpu.submit([reading = latest_] { reading->time = Clock::now(); });
    cpu.record(latest_->taken);
  }
  void wait(const Stream& stream) const override { stream_as<CpuStream>(stream).wait(latest_->taken); }
  bool reached() const override { return latest_->taken.reached(); }
  void wait() const override { latest_->taken.wait(); }
  Device device() const override { return Device::cpu(); }
  double ms_until(const Event::Impl& later) const override {
    const std::chrono::duration<double, std::milli> elapsed =
        static_cast<const CpuStreamEvent&>(later).latest_->time - latest_->time;
    return elapsed.count();
  }

 private:
  struct Reading {
    Clock::time_point time;  // written by the stream before `taken` is reached
    CpuEvent taken;
  };
  std::shared_ptr<Reading> latest_ = std::make_shared<Reading>();
};

}  // namespace

std::unique_ptr<Event::Impl> make_event(CpuStream&, bool /*timed*/) {
  return std::make_unique<CpuStreamEvent>();
}

Event::Event(const Stream& prototype, bool timed)
    : prototype_(prototype),
      impl_(on(prototype, [&](auto& stream) { return make_event(stream, timed); })),
      timed_(timed) {
  check(impl_ != nullptr, "an event needs a stream of a CPU or GPU, found one of the meta device");
}

void Event::record(const Stream& stream) {
  impl_->record(stream);
  recorded_ = true;
}

void Event::wait(const Stream& stream) const {
  const StreamWait wait;  // of an inline stream
  impl_->wait(stream);
}
bool Event::reached() const { return impl_->reached(); }
void Event::wait() const {
  const StreamWait wait;
  impl_->wait();
}

double elapsed_ms(const Event& begin, const Event& end) {
  check(begin.timed_ && end.timed_, "elapsed_ms: an event is not timed; create it with Event::timed()");
  check(begin.recorded_ && end.recorded_, "elapsed_ms: an event was never recorded");
  check(begin.impl_->device() == end.impl_->device(),
        "elapsed_ms: the events are on different devices, {} and {}", begin.impl_->device().name(),
        end.impl_->device().name());
  begin.wait();
  end.wait();
  return begin.impl_->ms_until(*end.impl_);
}

}  // namespace convoy
