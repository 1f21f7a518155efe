#include "convoy/apps/train/step_reporter.h"

#include <algorithm>
#include <cmath>

#include "convoy/apps/common/precision.h"
#include "convoy/comm/parallel/broadcast.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"

namespace convoy {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMaxUnreadLosses = 4096;  // steps

}  // namespace

std::vector<training::StepResult> RecordedSteps::results() const {
  std::vector<training::StepResult> results;
  if (!values_) return results;
  const std::vector<double> values = values_->values();
  auto value = values.begin();
  for (const Step& step : steps_) {
    training::StepResult& result = results.emplace_back(step.result);
    double correct = 0;
    for (std::size_t k = 0; k < step.parts; ++k) {
      result.loss += *value++;
      correct += *value++;
    }
    if (!std::isnan(correct)) result.correct = std::llround(correct);
  }
  return results;
}

double RecordedSteps::seconds() const {
  double milliseconds = 0;
  for (const auto& [begin, end] : intervals_) milliseconds += elapsed_ms(*begin, *end);
  return milliseconds * 1e-3;
}

StepRecorder::StepRecorder(const DeviceContext& device, DType dtype, std::int64_t capacity,
                           dist::Communicator* comm)
    : device_(device), comm_(comm), values_(Tensor::empty({2 * capacity}, dtype, device)) {}

RecordedSteps::Mark StepRecorder::mark() const {
  auto made = std::make_shared<Event>(Event::timed(device_.stream()));
  made->record();
  return made;
}

void StepRecorder::run() {
  if (!begin_) begin_ = mark();
}

void StepRecorder::pause() {
  if (begin_) recorded_.intervals_.emplace_back(std::exchange(begin_, nullptr), mark());
}

void StepRecorder::add(const training::StepResult& step, const std::vector<MicroBatchResult>& parts) {
  check(!full(parts.size()), "loss log: no room for step {} among {} losses", step.step, values_.size(0) / 2);
  std::vector<kernels::Assignment> copies;
  const auto place = [&] {
    ++next_;
    return values_.rows(next_ - 1, next_).view();
  };
  for (const MicroBatchResult& part : parts) {
    copies.push_back({.to = place(), .from = part.loss.view()});
    if (part.correct.defined())
      copies.push_back({.to = place(), .from = part.correct.view()});
    else
      copies.push_back({.to = place(), .value = NAN});
  }
  on(values_.stream(), [&](auto& s) { kernels::assign(s, copies); });
  recorded_.steps_.push_back({step, parts.size()});
}

RecordedSteps StepRecorder::take() {
  if (begin_) {
    const RecordedSteps::Mark now = mark();
    recorded_.intervals_.emplace_back(std::exchange(begin_, now), now);
  }
  if (comm_ != nullptr && next_ > 0) dist::all_reduce_in_order(*comm_, values_.rows(0, next_));
  if (recorded_.size() > 0) recorded_.values_ = std::make_unique<Readback>(values_.rows(0, next_));
  next_ = 0;
  return std::exchange(recorded_, {});
}

StepReporter::StepReporter(const TrainContext& context, const TrainStep& step, data::DataLoader& loader,
                           optim::LossScaler* scaler, std::int64_t total_steps,
                           std::function<void(CompletedSteps&)> on_completed)
    : context_(context),
      step_(step),
      loader_(loader),
      scaler_(scaler),
      total_steps_(total_steps),
      on_completed_(std::move(on_completed)),
      recorder_(context.device, parse_precision(context.options.precision).parameters,
                std::min(context.options.log_every == 0 ? kMaxUnreadLosses : context.options.log_every,
                         kMaxUnreadLosses) *  // of a window of --log-every steps
                    loader.micro_batches_per_step(),
                context.gradients) {}

void StepReporter::begin_step() {
  if (recorder_.full(static_cast<std::size_t>(loader_.micro_batches_per_step()))) synchronize();
  deliver(Wait::no);
  recorder_.run();
}

void StepReporter::end_step(const training::StepResult& step, const std::vector<MicroBatchResult>& results) {
  recorder_.add(step, results);
  if (context_.is_distributed() && !context_.is_gpu()) comm_ms_ += step_.communication_ms();
  const std::int64_t interval = context_.options.log_every;
  const bool is_due = interval > 0 ? step.step % interval == 0 : step.step >= next_measured_;
  if (is_due || step.step >= total_steps_) measure();
  if (is_due && interval == 0) next_measured_ = next_after(step.step);
  deliver(Wait::no);
}

std::int64_t StepReporter::next_after(std::int64_t step) {
  constexpr std::int64_t kFirst[] = {1, 2, 5, 10};
  constexpr std::int64_t kMinPoints = 50;  // of a training, unless it has fewer steps
  constexpr double kMinSeconds = 1, kMaxSeconds = 30, kFraction = 0.02;  // of the time since the start
  const auto now = Clock::now();
  if (next_measured_ == 0) measured_step_ = step - 1;  // the first one, perhaps after a resumption
  const std::chrono::duration<double> since_measured = now - measured_at_, since_start = now - began_;
  const double per_step =
      since_measured.count() / static_cast<double>(step - std::exchange(measured_step_, step));
  measured_at_ = now;
  double wanted = std::clamp(kFraction * since_start.count(), kMinSeconds, kMaxSeconds) / per_step;
  wanted = std::min(wanted, static_cast<double>(kMaxUnreadLosses));  // also of no time at all
  // The clocks of the ranks differ, and all must measure the same steps.
  if (context_.is_distributed()) {
    if (context_.rank() > 0) wanted = 0;
    dist::all_reduce_and_wait(*context_.control, {&wanted, {1}, DType::f64});
  }
  for (const std::int64_t first : kFirst)
    if (step < first) return first;
  const std::int64_t maximum = std::clamp(total_steps_ / kMinPoints, std::int64_t{1}, kMaxUnreadLosses);
  return step + std::clamp(std::llround(wanted), 1LL, static_cast<long long>(maximum));
}

void StepReporter::measure() {
  deliver(Wait::yes);
  Pending pending{.steps = {},
                  .measured = {.data_ms = loader_.take_wait_ms(),
                               .memory_bytes = context_.device.memory().stats().peak_in_use},
                  .before = std::exchange(delivered_, {}),
                  .scale = nullptr};
  pending.steps = recorder_.take();
  const auto steps = static_cast<double>(pending.before.steps + pending.steps.size());
  pending.measured.data_ms /= steps;
  if (context_.is_distributed()) pending.measured.comm_ms = std::exchange(comm_ms_, 0) / steps;
  if (scaler_ != nullptr) pending.scale = scaler_->start_reading();
  pending_ = std::move(pending);
}

void StepReporter::deliver(Wait wait) {
  if (!pending_ || (wait == Wait::no && !pending_->steps.ready())) return;
  Pending pending = std::move(*pending_);
  pending_.reset();
  if (pending.scale) pending.measured.scale = pending.scale->state();
  // On a GPU, the events have the times of the latest step, which is the measured step or a later one.
  if (context_.is_distributed() && context_.is_gpu()) pending.measured.comm_ms = step_.communication_ms();
  complete(pending.steps, pending.measured.scale, &pending.measured, pending.before);
}

void StepReporter::complete(const RecordedSteps& steps, const std::optional<optim::LossScaler::State>& scale,
                            training::StepMeasurements* measured, Times& times) {
  CompletedSteps completed{.results = steps.results(), .scale = scale, .seconds = steps.seconds()};
  times.steps += steps.size();
  for (const training::StepResult& result : completed.results) times.samples += result.samples;
  times.seconds += completed.seconds;
  if (measured != nullptr) {
    measured->images_per_second = static_cast<double>(times.samples) / times.seconds;
    measured->step_ms = times.seconds * 1e3 / static_cast<double>(times.steps);
    completed.results.back().measured = *measured;
  }
  on_completed_(completed);
}

void StepReporter::synchronize() {
  recorder_.pause();
  deliver(Wait::yes);
  const std::optional<optim::LossScaler::State> scale =
      scaler_ != nullptr ? std::optional(scaler_->read()) : std::nullopt;
  complete(recorder_.take(), scale, nullptr, delivered_);
}

}  // namespace convoy
