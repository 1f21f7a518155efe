#include "kernels/runtime/time_mark.h"

#include <chrono>

#include "kernels/base/check.h"
#include "kernels/runtime/stream_event_impl.h"
#include "kernels/runtime/time_mark_impl.h"

namespace convoy {
namespace {

using Clock = std::chrono::steady_clock;

/// A time mark whose stream reads the clock. An inline stream reads it at once. A stream with a worker thread
/// reads it when the thread reaches the mark.
class CpuTimeMark final : public TimeMark::Impl {
 public:
  void record(const Stream& stream) override {
    CpuStream& cpu = stream_as<CpuStream>(stream);
    latest_ = std::make_shared<Reading>();  // a new object, because an earlier reading may still be queued
    cpu.submit([reading = latest_] { reading->time = Clock::now(); });
    cpu.record(latest_->taken);
  }
  bool reached() const override { return latest_->taken.reached(); }
  void wait() const override { latest_->taken.wait(); }
  double ms_until(const TimeMark::Impl& later) const override {
    const std::chrono::duration<double, std::milli> elapsed =
        static_cast<const CpuTimeMark&>(later).latest_->time - latest_->time;
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

std::unique_ptr<TimeMark::Impl> make_time_mark(CpuStream&) { return std::make_unique<CpuTimeMark>(); }

TimeMark::TimeMark(const Device& device)
    : device_(device), impl_(on(device.stream(), [](auto& stream) { return make_time_mark(stream); })) {}

void TimeMark::record(const Stream& stream) {
  impl_->record(stream);
  recorded_ = true;
}

bool TimeMark::reached() const { return impl_->reached(); }
void TimeMark::wait() const { impl_->wait(); }

double elapsed_ms(const TimeMark& begin, const TimeMark& end) {
  check(begin.recorded_ && end.recorded_, "elapsed_ms: a time mark was never recorded");
  check(begin.device_ == end.device_, "elapsed_ms: the time marks are on different devices, {} and {}",
        begin.device_.name(), end.device_.name());
  begin.wait();
  end.wait();
  return begin.impl_->ms_until(*end.impl_);
}

}  // namespace convoy
