#include "apps/trainer.h"

#include <cmath>
#include <tuple>

#include "apps/plan_cache.h"
#include "apps/trace.h"
#include "engine/ops/ops.h"
#include "kernels/reduce.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

constexpr const char* kChoicesKey = "timed_choices";  // of a manifest
constexpr const char* kPlanKey = "bucket_plan";
constexpr const char* kBucketKey = "bucket_mb";  // what the plan was made for
constexpr std::int64_t kMostUnreadLosses = 4096;

using StepClock = std::chrono::steady_clock;

double milliseconds(StepClock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

/// The first global batch of epoch 0, in the order that training would see it.
ImageSet first_batch(const ImageSet& set, std::int64_t count, std::uint64_t seed) {
  const std::vector<std::int32_t> order = epoch_order(set.size(), seed, 0);
  count = std::min(count, set.size());
  const Shape& all = set.images.shape();
  ImageSet batch{Tensor::empty({count, all[1], all[2], all[3]}, set.images.dtype(), set.images.device()),
                 Tensor::empty({count}, set.labels.dtype(), set.labels.device())};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t from = order[static_cast<std::size_t>(i)];
    batch.images.rows(i, i + 1).copy_from(set.images.rows(from, from + 1));
    batch.labels.rows(i, i + 1).copy_from(set.labels.rows(from, from + 1));
  }
  return batch;
}

std::int64_t count_steps(const TrainOptions& options, std::int64_t steps_per_epoch) {
  const std::int64_t by_epochs = *options.epochs * steps_per_epoch;
  if (options.max_steps == 0) return by_epochs;
  return by_epochs == 0 ? options.max_steps : std::min(by_epochs, options.max_steps);
}

/// null where the loss needs no scale: only f16 has so few exponents that gradients vanish.
std::unique_ptr<LossScaler> make_scaler(const TrainOptions& options, const Precision& precision,
                                        const Device& device) {
  if (precision.compute != DType::f16) return nullptr;
  return std::make_unique<LossScaler>(device, precision.parameters, loss_scale_settings(options));
}

}  // namespace

Trainer::Trainer(const TrainOptions& options, TrainerParts parts)
    : options_(options),
      parts_(std::move(parts)),
      precision_(parse_precision(options.precision)),
      train_(parts_.data.train),
      scaler_(make_scaler(options, precision_, parts_.device)),
      timer_(parts_.device) {
  synchronize_statistics();
  const auto seed = static_cast<std::uint64_t>(options_.seed);
  if (options_.overfit_batch) train_ = first_batch(train_, *options_.batch_size, seed);
  if (train_.size() == 0) fail<DataError>("{}: no training images", parts_.data.note);
  const std::int64_t steps_per_epoch = (train_.size() + *options_.batch_size - 1) / *options_.batch_size;
  total_steps_ = count_steps(options_, steps_per_epoch);
  const bool resident = keeps_on_device(options_.compute, parts_.device, train_.images.bytes());
  loader_ = std::make_unique<DataLoader>(
      train_, LoaderOptions{.global_batch = *options_.batch_size,
                            .micro_batch = options_.micro_batch_size,
                            .rank = parts_.rank(),
                            .world = parts_.world(),
                            .seed = seed,
                            .shuffle = !options_.overfit_batch,
                            .transform = parts_.transform,
                            .dtype = precision_.compute,
                            .workers = static_cast<int>(options_.data.workers),
                            .max_epochs = (total_steps_ + steps_per_epoch - 1) / steps_per_epoch,
                            .device = parts_.device,
                            .resident = resident,
                            .defer_images = resident});
  make_optimizer();
  const auto warmup = std::llround(*options_.warmup * static_cast<double>(total_steps_));
  schedule_ = make_schedule(*options_.schedule, {.peak = *options_.lr,
                                                 .steps = total_steps_,
                                                 .warmup = std::min<std::int64_t>(warmup, total_steps_ - 1)});
  step_ = std::make_unique<TrainStep>(
      parts_.model, *optimizer_, scaler_.get(), *loader_, parts_.device,
      TrainStepSettings{
          .seed = seed,
          .label_smoothing = *options_.label_smoothing,
          .clip_norm = options_.clip_norm > 0 ? std::optional(options_.clip_norm) : std::nullopt,
          .dtype = precision_.compute,
          .loss_dtype = precision_.parameters,
          .record = records_updates(options_.compute, parts_.device),
          .computes_empty = parts_.statistics != nullptr,
          .profiler = parts_.profiler});
  loss_log_ = std::make_unique<LossLog>(
      parts_.device, precision_.parameters,
      std::min(options_.log_every, kMostUnreadLosses) * loader_->micro_batches_per_step(), parts_.gradients);
}

std::optional<std::string> Trainer::resume(const std::filesystem::path& checkpoint) {
  if (sharded_) restored_ = sharded_->make_whole();
  const Manifest manifest = restored_ ? load_checkpoint(checkpoint, parts_.model.root(), *restored_)
                                      : load_checkpoint(checkpoint, parts_.model.root(), optimizer_.get());
  state_ = read_state(manifest, checkpoint);
  saved_step_ = state_.step;
  if (scaler_ && state_.scale) scaler_->restore(*state_.scale);
  const auto plan = manifest.extra.find(kPlanKey), limit = manifest.extra.find(kBucketKey);
  if (plan != manifest.extra.end() && limit != manifest.extra.end() &&
      limit->second == fmt::format("{}", options_.bucket_mb))
    bucket_plan_ = plan->second;
  const auto choices = manifest.extra.find(kChoicesKey);
  if (choices == manifest.extra.end() || options_.compute.deterministic) return std::nullopt;
  const std::optional<std::string> problem = take_choices(choices->second, parts_.device);
  if (!problem) return std::nullopt;
  return fmt::format(
      "{}: its table of timed algorithms {}; they are timed anew, and sums may round otherwise",
      checkpoint.string(), *problem);
}

int Trainer::run(TrainerCallbacks callbacks) {
  callbacks_ = std::move(callbacks);
  make_exchange();
  if (!finished()) loader_->seek(state_.epoch, state_.epoch_step);
  while (true) {
    // What is due at this step comes before the next one, so that a resume from here finds the same duties.
    int signal = agreed_stop();
    if (signal == 0 && evaluation_due()) {
      run_evaluation();
      signal = agreed_stop();
    }
    const bool stopped = signal != 0;
    if (save_due() || (stopped && saved_step_ != state_.step)) save();
    if (stopped || finished()) settle();  // nothing is due where the last step was saved, but reports may be
    if (finished()) check_replicas();
    if (stopped) return signal;
    if (finished()) return 0;
    take_step();
  }
}

void Trainer::take_step() {
  deliver_reports(Wait::no);
  timer_.run();
  if (callbacks_.on_parts && !step_began_) step_began_ = StepClock::now();
  std::vector<Batch> batches;
  const auto data_begin = StepClock::now();
  {
    const Profiler::Range range(parts_.profiler, "data wait", "data");
    batches = loader_->next_update();
    if (batches.empty()) batches = loader_->next_update();  // the end of an epoch was passed
  }
  const double data_ms = milliseconds(StepClock::now() - data_begin);
  const std::int64_t samples = batches.front().global_count;
  const double lr = schedule_(state_.step);
  if (loss_log_->full(batches.size())) settle();
  loss_log_->add(state_.step + 1, step_->run(batches, lr));
  if (const auto problem = step_->take_problem(); problem && callbacks_.on_warning)
    callbacks_.on_warning(state_.step + 1, *problem);
  if (is_traced()) trace_step();
  if (callbacks_.on_parts) report_parts(data_ms);
  if (gradients_ && parts_.device.kind() == DeviceKind::cpu) window_comm_ms_ += step_->phases().communication;
  finish_step(samples, lr);
  if (options_.check_replicas > 0 && state_.step % options_.check_replicas == 0) check_replicas();
}

void Trainer::finish_step(std::int64_t samples, double lr) {
  const std::int64_t epoch = state_.epoch;
  ++state_.step;
  state_.samples += samples;
  ++window_steps_;
  window_samples_ += samples;
  const bool epoch_ends = ++state_.epoch_step == loader_->steps_per_epoch();
  if (epoch_ends) {
    state_.epoch_step = 0;
    ++state_.epoch;
  }
  queue_report({.step = state_.step, .epoch = epoch, .samples = state_.samples, .lr = lr, .measured = {}});
  deliver_reports(Wait::no);
  if (epoch_ends && callbacks_.on_epoch) callbacks_.on_epoch(epoch);
}

bool Trainer::is_reported(std::int64_t step) const {
  return step % options_.log_every == 0 || step >= total_steps_;
}

void Trainer::queue_report(StepReport report) {
  if (!is_reported(report.step)) {
    reports_.push_back({.report = std::move(report), .measurement = {}});
    return;
  }
  deliver_reports(Wait::yes);  // one measurement at a time is on its way: the host runs ahead no further
  const auto steps = static_cast<double>(window_steps_);
  report.measured = StepMeasurements{.data_ms = loader_->take_wait_ms() / steps,
                                     .memory_bytes = parts_.device.memory().stats().peak_in_use};
  if (gradients_) report.measured->comm_ms = std::exchange(window_comm_ms_, 0) / steps;
  reports_.push_back(
      {.report = std::move(report),
       .measurement = Report::Measurement{.losses = loss_log_->take(),
                                          .window = timer_.take(),
                                          .carried_seconds = std::exchange(carried_seconds_, 0),
                                          .steps = std::exchange(window_steps_, 0),
                                          .samples = std::exchange(window_samples_, 0),
                                          .scale = scaler_ ? scaler_->start_reading() : nullptr}});
}

void Trainer::deliver_reports(Wait wait) {
  while (!reports_.empty()) {
    Report& next = reports_.front();
    if (wait == Wait::no && next.measurement && !next.measurement->losses.ready()) return;
    deliver(next);
    reports_.pop_front();
  }
}

void Trainer::deliver(Report& report) {
  if (report.measurement) {
    const Report::Measurement& arrived = *report.measurement;
    StepMeasurements& measured = *report.report.measured;
    if (arrived.scale) measured.scale = arrived.scale->state();
    take_losses(arrived.losses, measured.scale);
    const double seconds = StepTimer::seconds(arrived.window);
    state_.train_seconds += seconds;
    const double all_seconds = seconds + arrived.carried_seconds;
    measured.loss = state_.last_loss;
    measured.average_loss = state_.loss.value();
    measured.images_per_second = static_cast<double>(arrived.samples) / all_seconds;
    measured.step_ms = all_seconds * 1e3 / static_cast<double>(arrived.steps);
    // A GPU's marks hold the times of its latest step, and are no older than this report's.
    if (gradients_ && parts_.device.kind() == DeviceKind::cuda)
      measured.comm_ms = step_->phases().communication;
  }
  if (callbacks_.on_step) callbacks_.on_step(report.report);
}

void Trainer::take_losses(const LossesInFlight& in_flight, const std::optional<LossScaler::State>& scale) {
  for (const LossesInFlight::Loss& loss : in_flight.losses()) {
    // A loss that overflows f16 makes an update that is skipped, and counts for nothing.
    if (scale && !std::isfinite(loss.value)) continue;
    if (!std::isfinite(loss.value))
      fail<NumericError>(
          "the loss of step {} is {}{}; lower --lr (now {}) or set --clip-norm; {}", loss.step, loss.value,
          loss.step > 1 ? fmt::format(", after {} at step {}", state_.last_loss, loss.step - 1) : "",
          *options_.lr, last_checkpoint());
    state_.last_loss = loss.value;
    state_.loss.add(loss.value);
  }
  state_.scale = scale;
  if (scale && scale->failed) fail_scaling(*scale);
}

void Trainer::fail_scaling(const LossScaler::State& scale) const {
  std::vector<NamedParameter> parameters;  // those that the gradients examined are of
  for (const ParameterGroup& group : optimizer_->groups())
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  const std::string layer = first_non_finite(shards_ ? parameters : parts_.model.parameters());
  fail<NumericError>(
      "by step {} gradients overflow f16 even at the least loss scale, {}{}, and {} updates were skipped; "
      "lower "
      "--lr (now {}), set --clip-norm or use --precision bf16; {}",
      state_.step, scale.scale, layer.empty() ? "" : fmt::format(", the first in {}", layer), scale.skipped,
      *options_.lr, last_checkpoint());
}

std::string Trainer::last_checkpoint() const {
  return saved_step_ < 0 ? "there is no checkpoint yet"
                         : fmt::format("the checkpoint of step {} is intact", saved_step_);
}

void Trainer::settle() {
  timer_.pause();
  deliver_reports(Wait::yes);
  const std::optional<LossScaler::State> scale = scaler_ ? std::optional(scaler_->read()) : std::nullopt;
  take_losses(loss_log_->take(), scale);
  const double seconds = StepTimer::seconds(timer_.take());
  state_.train_seconds += seconds;
  carried_seconds_ += seconds;
  if (gradients_) gradients_->gather_parameters();
}

void Trainer::trace_step() {
  const bool is_gpu = parts_.device.kind() == DeviceKind::cuda;
  if (!is_gpu && !gradients_) return;  // the CPU's phases are ranges of the host
  TimeMark now(parts_.device);
  now.record();
  now.wait();  // a trace is there to be looked at, not to be fast
  const Profiler::Clock::time_point origin = Profiler::Clock::now();
  if (gradients_) trace_buckets(*parts_.profiler, gradients_->bucket_times(now), origin);
  if (!is_gpu) return;
  const TrainStep::Phases phases = step_->phases();
  const auto span = [](double ms) {
    return std::chrono::duration_cast<Profiler::Clock::duration>(
        std::chrono::duration<double, std::milli>(ms));
  };
  auto begin = origin - span(phases.forward + phases.backward + phases.communication + phases.update);
  for (const auto& [name, category, ms] :
       {std::tuple("forward", "compute", phases.forward), std::tuple("backward", "compute", phases.backward),
        std::tuple("wait for gradients", "communication", phases.communication),
        std::tuple("optimizer", "compute", phases.update)}) {
    if (gradients_ || std::string_view(category) == "compute")
      parts_.profiler->add(parts_.device.name(), name, category, begin, span(ms));
    begin += span(ms);
  }
}

void Trainer::report_parts(double data_ms) {
  TimeMark now(parts_.device);
  now.record();
  now.wait();
  const TrainStep::Phases phases = step_->phases();
  const auto end = StepClock::now();
  const double step_ms = milliseconds(end - std::exchange(*step_began_, end));
  callbacks_.on_parts(state_.step + 1, {.step = step_ms,
                                        .data = data_ms,
                                        .forward = phases.forward,
                                        .backward = phases.backward,
                                        .communication = phases.communication,
                                        .update = phases.update,
                                        .idle = step_ms - data_ms - phases.forward - phases.backward -
                                                phases.communication - phases.update});
}

bool Trainer::evaluation_due() const {
  if (state_.evaluated && state_.evaluated->step == state_.step) return false;
  if (finished()) return true;
  return state_.step > 0 && state_.epoch_step == 0 && *options_.eval_every > 0 &&
         state_.epoch % *options_.eval_every == 0;
}

void Trainer::run_evaluation() {
  settle();
  const Profiler::Range range(parts_.profiler, "evaluation");
  share_running_statistics();
  const Tensor& test_images = parts_.data.test.images;
  if (!resident_test_images_.defined() &&
      keeps_on_device(options_.compute, parts_.device, test_images.bytes()))
    resident_test_images_ = test_images.to(parts_.device);
  const std::optional<Evaluation> evaluation = evaluate(
      parts_.model, parts_.device, parts_.data.test,
      {.transform = parts_.transform,
       .batch_size = options_.micro_batch_size > 0 ? options_.micro_batch_size : *options_.batch_size,
       .workers = static_cast<int>(options_.data.workers),
       .dtype = precision_.compute,
       .resident_images = resident_test_images_,
       .comm = parts_.control,
       .stop = [this] { return agreed_stop() != 0; },
       .progress = callbacks_.on_evaluation_progress});
  if (!evaluation) return;  // stopped: still due after a resume
  state_.evaluated = {.step = state_.step,
                      .accuracy = evaluation->accuracy,
                      .loss = evaluation->loss,
                      .count = evaluation->count};
  const bool is_best = !state_.best || evaluation->accuracy > state_.best->accuracy;
  if (is_best) state_.best = state_.evaluated;
  best_unsaved_ = is_best && options_.keep_best;
  if (callbacks_.on_evaluation) callbacks_.on_evaluation(state_.step, *evaluation, is_best);
}

bool Trainer::save_due() const {
  if (best_unsaved_) return true;
  if (saved_step_ == state_.step) return false;
  if (finished()) return true;
  if (state_.step == 0) return false;
  return *options_.save_every > 0 ? state_.step % *options_.save_every == 0 : state_.epoch_step == 0;
}

void Trainer::save() {
  settle();
  check_parameters();
  share_running_statistics();
  std::optional<OptimizerState> optimizer;
  if (sharded_) optimizer = sharded_->gather();
  if (parts_.rank() == 0) write_checkpoint(optimizer ? *optimizer : state_of(*optimizer_));
  saved_step_ = state_.step;
  best_unsaved_ = false;
}

void Trainer::write_checkpoint(const OptimizerState& optimizer) {
  const Profiler::Range range(parts_.profiler, "save", "io");
  Manifest manifest;
  manifest.model = parts_.model.name();
  manifest.extra = parts_.extra;
  if (std::string choices = choices_text(parts_.device); !choices.empty())
    manifest.extra[kChoicesKey] = std::move(choices);
  if (std::optional<std::string> plan = gradients_ ? gradients_->kept_plan() : std::nullopt) {
    manifest.extra[kPlanKey] = std::move(*plan);
    manifest.extra[kBucketKey] = fmt::format("{}", options_.bucket_mb);
  }
  write_state(state_, manifest);
  const std::filesystem::path path =
      parts_.checkpoints.save(parts_.model.root(), optimizer, manifest, best_unsaved_);
  if (callbacks_.on_save) callbacks_.on_save(state_.step, path);
}

void Trainer::check_parameters() const {
  const std::vector<NamedParameter> parameters = parts_.model.parameters();
  std::vector<ConstView> views;
  for (const NamedParameter& parameter : parameters) views.push_back(parameter.variable.value().view());
  const Tensor norm = Tensor::empty({1}, DType::f64, parts_.device);
  on(parts_.device.stream(), [&](auto& s) { global_norm(s, views, norm.view()); });
  if (!std::isfinite(norm.item()))
    fail<NumericError>(
        "the parameters after step {} are not finite, the last loss was {}; lower --lr (now {}) or set "
        "--clip-norm; they are not saved",
        state_.step, state_.last_loss, *options_.lr);
}

std::size_t Trainer::optimizer_bytes() const {
  std::size_t bytes = 0;
  for (const NamedState& state : optimizer_->state()) bytes += state.tensor.bytes();
  return bytes;
}

std::size_t Trainer::gradient_bytes() const {
  if (gradients_) return gradients_->gradient_bytes();
  std::size_t bytes = 0;
  for (const NamedParameter& parameter : parts_.model.parameters())
    if (parameter.variable.requires_grad()) bytes += parameter.variable.value().bytes();
  return bytes;
}

double Trainer::try_batch() {
  const NoGrad no_grad;
  loader_->seek(state_.epoch, state_.epoch_step);
  const std::vector<Batch> batches = loader_->next_update();
  const Batch& batch = batches.front();
  Tensor images = batch.images;
  if (!images.defined()) {
    const Shape& image = parts_.model.input();
    images =
        Tensor::empty({batch.ids.size(0), image[0], image[1], image[2]}, precision_.compute, parts_.device);
    const auto epoch = static_cast<std::int32_t>(state_.epoch);
    loader_->make_images(batch.ids, Tensor::full({1}, epoch, DType::i32, parts_.device), images);
  }
  const double sum = cross_entropy_sum(parts_.model(images), batch.labels).value().item();
  return sum / static_cast<double>(images.size(0));
}

}  // namespace convoy
