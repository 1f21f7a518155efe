#include "convoy/apps/train/step_reporter.h"

#include <algorithm>
#include <utility>

#include "convoy/kernels/runtime/event.h"

namespace convoy {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMaxUnreadLosses = 4096;  // steps

}  // namespace

StepReporter::StepReporter(StepSources sources, StepReporterOptions options, OnCompleted on_completed)
    : sources_(sources),
      options_(options),
      on_completed_(std::move(on_completed)),
      loss_log_(sources.device, options.loss_dtype,
                std::min(options.log_every, kMaxUnreadLosses) * sources.loader.micro_batches_per_step(),
                sources.gradients),
      timer_(sources.device) {}

void StepReporter::set_callbacks(OnStep on_step, OnParts on_parts) {
  on_step_ = std::move(on_step);
  on_parts_ = std::move(on_parts);
}

void StepReporter::begin_step() {
  deliver(Wait::no);
  timer_.run();
  if (on_parts_ && !step_began_) step_began_ = Clock::now();
}

void StepReporter::end_step(StepReport report, double data_ms) {
  if (on_parts_) report_parts(report.step, data_ms);
  if (sources_.gradients != nullptr && sources_.device.kind() == DeviceKind::cpu)
    window_comm_ms_ += sources_.step.communication_ms();
  ++window_steps_;
  enqueue(std::move(report));
  deliver(Wait::no);
}

void StepReporter::report_parts(std::int64_t step, double data_ms) {
  Event now = Event::timed(sources_.device.stream());
  now.record();
  now.wait();
  const TrainStep::Phases phases = sources_.step.phases();
  const auto end = Clock::now();
  const double step_ms =
      std::chrono::duration<double, std::milli>(end - std::exchange(*step_began_, end)).count();
  on_parts_(step, {.step = step_ms,
                   .data = data_ms,
                   .forward = phases.forward,
                   .backward = phases.backward,
                   .communication = phases.communication,
                   .optimizer = phases.optimizer,
                   .idle = step_ms - data_ms - phases.forward - phases.backward - phases.communication -
                           phases.optimizer});
}

bool StepReporter::is_measured(std::int64_t step) const {
  return step % options_.log_every == 0 || step >= options_.total_steps;
}

void StepReporter::enqueue(StepReport report) {
  if (!is_measured(report.step)) {
    pending_.push_back({.report = std::move(report), .measurement = {}});
    return;
  }
  deliver(Wait::yes);
  const auto steps = static_cast<double>(std::exchange(window_steps_, 0));
  report.measured = StepMeasurements{.data_ms = sources_.loader.take_wait_ms() / steps,
                                     .memory_bytes = sources_.device.memory().stats().peak_in_use};
  if (sources_.gradients != nullptr) report.measured->comm_ms = std::exchange(window_comm_ms_, 0) / steps;
  pending_.push_back({.report = std::move(report),
                      .measurement = Pending::Measurement{
                          .losses = loss_log_.take(),
                          .window = timer_.take(),
                          .before_pause = std::exchange(before_pause_, {}),
                          .scale = sources_.scaler != nullptr ? sources_.scaler->start_reading() : nullptr}});
}

void StepReporter::deliver(Wait wait) {
  while (!pending_.empty()) {
    Pending& next = pending_.front();
    if (wait == Wait::no && next.measurement && !next.measurement->losses.ready()) return;
    deliver(next);
    pending_.pop_front();
  }
}

void StepReporter::deliver(Pending& pending) {
  if (pending.measurement) {
    const Pending::Measurement& measurement = *pending.measurement;
    StepMeasurements& measured = *pending.report.measured;
    if (measurement.scale) measured.scale = measurement.scale->state();
    training::StepTimes times = complete(measurement.losses, measured.scale, measurement.window);
    times.add(measurement.before_pause);
    measured.loss = sources_.losses.last();
    measured.average_loss = sources_.losses.average();
    measured.images_per_second = times.samples_per_second();
    measured.step_ms = times.step_ms();
    // On a GPU, the events have the times of the latest step, which is this step or a later one.
    if (sources_.gradients != nullptr && sources_.device.kind() == DeviceKind::cuda)
      measured.comm_ms = sources_.step.communication_ms();
  }
  if (on_step_) on_step_(pending.report);
}

training::StepTimes StepReporter::complete(const LossesInFlight& losses,
                                           const std::optional<optim::LossScaler::State>& scale,
                                           const StepTimer::Window& window) {
  CompletedSteps completed{.results = losses.results(), .scale = scale, .times = {}};
  for (const training::StepResult& result : completed.results)
    completed.times.add({.steps = 1, .samples = result.samples});
  completed.times.seconds = StepTimer::seconds(window);
  on_completed_(completed);
  return completed.times;
}

void StepReporter::synchronize() {
  timer_.pause();
  deliver(Wait::yes);
  const std::optional<optim::LossScaler::State> scale =
      sources_.scaler != nullptr ? std::optional(sources_.scaler->read()) : std::nullopt;
  const LossesInFlight losses = loss_log_.take();
  before_pause_.add(complete(losses, scale, timer_.take()));
}

}  // namespace convoy
