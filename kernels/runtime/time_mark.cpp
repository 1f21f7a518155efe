#include "kernels/runtime/time_mark.h"

#include <chrono>

#include "kernels/runtime/check.h"
#include "kernels/runtime/time_point.h"

namespace convoy {
namespace {

using Clock = std::chrono::steady_clock;

/// A compute stream of the CPU works inline: it is where its caller is.
class CpuTimePoint final : public TimeMark::Point {
 public:
  void record() override { time_ = Clock::now(); }
  bool reached() const override { return true; }
  void wait() const override {}
  double ms_until(const TimeMark::Point& later) const override {
    const std::chrono::duration<double, std::milli> elapsed =
        static_cast<const CpuTimePoint&>(later).time_ - time_;
    return elapsed.count();
  }

 private:
  Clock::time_point time_;
};

}  // namespace

std::unique_ptr<TimeMark::Point> make_time_point(CpuStream&) { return std::make_unique<CpuTimePoint>(); }

TimeMark::TimeMark(const Device& device)
    : device_(device), point_(on(device.stream(), [](auto& stream) { return make_time_point(stream); })) {}

void TimeMark::record() {
  point_->record();
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
