#include "kernels/runtime/time_mark.h"

#include <chrono>

#include "kernels/runtime/check.h"
#include "kernels/runtime/stream_point.h"
#include "kernels/runtime/time_point.h"

namespace convoy {
namespace {

using Clock = std::chrono::steady_clock;

/// The stream reads the clock: at once where it works inline, else on its own thread, when it gets there.
class CpuTimePoint final : public TimeMark::Point {
 public:
  void record(const Stream& stream) override {
    CpuStream& cpu = stream_as<CpuStream>(stream);
    latest_ = std::make_shared<Reading>();  // an earlier one that is still queued shall not be the last
    cpu.submit([reading = latest_] { reading->time = Clock::now(); });
    cpu.record(latest_->taken);
  }
  bool reached() const override { return latest_->taken.reached(); }
  void wait() const override { latest_->taken.wait(); }
  double ms_until(const TimeMark::Point& later) const override {
    const std::chrono::duration<double, std::milli> elapsed =
        static_cast<const CpuTimePoint&>(later).latest_->time - latest_->time;
    return elapsed.count();
  }

 private:
  struct Reading {
    Clock::time_point time;  // the stream's to write until `taken`
    CpuEvent taken;
  };
  std::shared_ptr<Reading> latest_ = std::make_shared<Reading>();
};

}  // namespace

std::unique_ptr<TimeMark::Point> make_time_point(CpuStream&) { return std::make_unique<CpuTimePoint>(); }

TimeMark::TimeMark(const Device& device)
    : device_(device), point_(on(device.stream(), [](auto& stream) { return make_time_point(stream); })) {}

void TimeMark::record(const Stream& stream) {
  point_->record(stream);
  recorded_ = true;
}

bool TimeMark::reached() const { return point_->reached(); }
void TimeMark::wait() const { point_->wait(); }

double elapsed_ms(const TimeMark& begin, const TimeMark& end) {
  check(begin.recorded_ && end.recorded_, "a time mark that was never recorded");
  check(begin.device_ == end.device_, "time marks of two devices, {} and {}", begin.device_.name(),
        end.device_.name());
  begin.wait();
  end.wait();
  return begin.point_->ms_until(*end.point_);
}

}  // namespace convoy
