#include "convoy/engine/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::optim {
namespace {

void check_options(std::string_view name, const ScheduleOptions& options, bool has_final) {
  check(std::isfinite(options.peak) && options.peak >= 0, "schedule {}: peak rate {}, expected at least 0",
        name, options.peak);
  check(options.steps >= 1, "schedule {}: {} steps, expected at least 1", name, options.steps);
  check(options.warmup >= 0 && options.warmup < options.steps,
        "schedule {}: {} warmup steps in a training of {} steps, expected fewer", name, options.warmup,
        options.steps);
  check(std::isfinite(options.final) && options.final >= 0, "schedule {}: final rate {}, expected at least 0",
        name, options.final);
  check(has_final || options.final == 0,
        "schedule {}: final rate {}, expected 0, since this schedule has none", name, options.final);
}

/// Returns a schedule of the warmup followed by rate(step).
template <class Rate>
Schedule with_warmup(const ScheduleOptions& options, Rate rate) {
  return [options, rate = std::move(rate)](std::int64_t step) {
    if (step >= options.warmup) return rate(step);
    return options.peak * static_cast<double>(std::max<std::int64_t>(step, 0) + 1) /
           static_cast<double>(options.warmup + 1);
  };
}

/// Returns a schedule of the warmup followed by shape(t), t in [0, 1].
template <class Shape>
Schedule after_warmup(const ScheduleOptions& options, Shape shape) {
  return with_warmup(options, [options, shape](std::int64_t step) {
    const auto done = static_cast<double>(std::min(step, options.steps) - options.warmup);
    return shape(done / static_cast<double>(options.steps - options.warmup));
  });
}

}  // namespace

Schedule constant(ScheduleOptions options) {
  check_options("constant", options, false);
  return after_warmup(options, [peak = options.peak](double) { return peak; });
}

Schedule linear(ScheduleOptions options) {
  check_options("linear", options, true);
  return after_warmup(
      options, [peak = options.peak, last = options.final](double t) { return peak + (last - peak) * t; });
}

Schedule cosine(ScheduleOptions options, int cycles, double growth) {
  check_options("cosine", options, true);
  check(cycles >= 1 && std::isfinite(growth) && growth >= 1,
        "schedule cosine: {} cycles with growth {}, expected at least 1 of both", cycles, growth);
  double total = 0;  // the length of all cycles; that of the first is 1
  for (int i = 0; i < cycles; ++i) total += std::pow(growth, i);
  return with_warmup(options, [options, cycles, growth, total](std::int64_t step) {
    const auto done = static_cast<double>(std::min(step, options.steps) - options.warmup);
    double at = done * total / static_cast<double>(options.steps - options.warmup), length = 1;
    for (int i = 1; i < cycles && at >= length; ++i) {
      at -= length;
      length *= growth;
    }
    return options.final +
           (options.peak - options.final) * (1 + std::cos(std::numbers::pi * at / length)) / 2;
  });
}

Schedule step_decay(ScheduleOptions options, std::vector<double> milestones, double factor) {
  check_options("step", options, false);
  check(std::isfinite(factor) && factor > 0, "schedule step: factor {}, expected more than 0", factor);
  std::vector<std::int64_t> drops;
  for (const double milestone : milestones) {
    check(milestone > 0 && milestone < 1,
          "schedule step: milestone {}, expected a fraction of the steps between 0 and 1", milestone);
    drops.push_back(std::llround(milestone * static_cast<double>(options.steps)));
  }
  return with_warmup(options, [peak = options.peak, drops = std::move(drops), factor](std::int64_t step) {
    double rate = peak;
    for (const std::int64_t drop : drops)
      if (step >= drop) rate *= factor;
    return rate;
  });
}

Schedule exponential(ScheduleOptions options, double factor, std::int64_t period) {
  check_options("exponential", options, false);
  check(std::isfinite(factor) && factor > 0, "schedule exponential: factor {}, expected more than 0", factor);
  check(period > 0, "schedule exponential: period of {} steps, expected at least 1", period);
  return with_warmup(options, [options, factor, period](std::int64_t step) {
    const std::int64_t periods = (std::min(step, options.steps) - options.warmup) / period;
    return options.peak * std::pow(factor, static_cast<double>(periods));
  });
}

Schedule polynomial(ScheduleOptions options, double power) {
  check_options("polynomial", options, true);
  check(std::isfinite(power) && power > 0, "schedule polynomial: power {}, expected more than 0", power);
  return after_warmup(options, [peak = options.peak, last = options.final, power](double t) {
    return last + (peak - last) * std::pow(1 - t, power);
  });
}

Schedule one_cycle(ScheduleOptions options) {
  constexpr double kRise = 0.3, kFirst = 1.0 / 25, kLast = kFirst / 1e4;
  check_options("one-cycle", options, false);
  check(options.warmup == 0,
        "schedule one-cycle: {} warmup steps, expected 0, since the schedule has its own rise",
        options.warmup);
  return [peak = options.peak, steps = options.steps](std::int64_t step) {
    if (steps == 1) return peak;
    const double last = static_cast<double>(steps) - 1;
    const double top = kRise * static_cast<double>(steps) - 1;  // where the rate is at its peak
    const double at = std::clamp(static_cast<double>(step), 0.0, last);
    const auto between = [&](double from, double to, double t) {
      return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * t));
    };
    if (at <= top) return between(peak * kFirst, peak, at / top);
    return between(peak, peak * kLast, (at - top) / (last - top));
  };
}

}  // namespace convoy::optim
