#include "apps/train/trainer.h"

#include <cmath>
#include <tuple>

#include "apps/common/plan_cache.h"
#include "apps/train/trace.h"
#include "engine/ops/ops.h"
#include "kernels/base/check.h"
#include "kernels/reduce.h"

namespace convoy {
namespace {

// Keys of a manifest.
constexpr const char* kAlgorithmsKey = "timed_choices";
constexpr const char* kPlanKey = "bucket_plan";
constexpr const char* kBucketKey = "bucket_mb";  // the --bucket-mb of the plan
constexpr std::int64_t kMaxUnreadLosses = 4096;

using StepClock = std::chrono::steady_clock;

double milliseconds(StepClock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

/// Returns the first global batch of epoch 0, in the order of training.
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

/// Returns null if the loss needs no scaling. Only f16 has so small a range that gradients underflow.
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
  set_up_sync_batch_norm();
  const auto seed = static_cast<std::uint64_t>(options_.seed);
  if (options_.overfit_batch) train_ = first_batch(train_, *options_.batch_size, seed);
  if (train_.size() == 0) fail<DataError>("{}: no training images", parts_.data.note);
  const std::int64_t steps_per_epoch = (train_.size() + *options_.batch_size - 1) / *options_.batch_size;
  total_steps_ = count_steps(options_, steps_per_epoch);
  const bool resident = keep_data_on_device(options_.compute, parts_.device, train_.images.bytes());
  loader_ = std::make_unique<DataLoader>(
      train_, LoaderOptions{.global_batch = *options_.batch_size,
                            .micro_batch = options_.micro_batch_size,
                            .rank = parts_.rank(),
                            .world_size = parts_.world_size(),
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
          .capture = use_cuda_graph(options_.compute, parts_.device),
          .run_empty_batches = parts_.statistics != nullptr,
          .profiler = parts_.profiler});
  loss_log_ = std::make_unique<LossLog>(
      parts_.device, precision_.parameters,
      std::min(options_.log_every, kMaxUnreadLosses) * loader_->micro_batches_per_step(), parts_.gradients);
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
  const auto algorithms = manifest.extra.find(kAlgorithmsKey);
  if (algorithms == manifest.extra.end() || options_.compute.deterministic) return std::nullopt;
  const std::optional<std::string> problem = load_algorithm_cache(algorithms->second, parts_.device);
  if (!problem) return std::nullopt;
  return fmt::format(
      "{}: the algorithm cache in its manifest {}; algorithms are autotuned again and may round differently",
      checkpoint.string(), *problem);
}

int Trainer::run(TrainerCallbacks callbacks) {
  callbacks_ = std::move(callbacks);
  make_reducer();
  if (!finished()) loader_->seek(state_.epoch, state_.epoch_step);
  while (true) {
    // Evaluations and checkpoints of this step precede the next step, so that a resumed run continues in the
    // same order.
    int signal = agree_on_stop();
    if (signal == 0 && evaluation_due()) {
      run_evaluation();
      signal = agree_on_stop();
    }
    const bool stopped = signal != 0;
    if (save_due() || (stopped && saved_step_ != state_.step)) save();
    if (stopped || finished()) synchronize();  // delivers the remaining reports
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
    batches = loader_->next_step();
    if (batches.empty()) batches = loader_->next_step();  // the previous epoch has ended
  }
  const double data_ms = milliseconds(StepClock::now() - data_begin);
  const std::int64_t samples = batches.front().global_count;
  const double lr = schedule_(state_.step);
  if (loss_log_->full(batches.size())) synchronize();
  loss_log_->add(state_.step + 1, step_->run(batches, lr));
  if (const auto warning = step_->take_warning(); warning && callbacks_.on_warning)
    callbacks_.on_warning(state_.step + 1, *warning);
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
  deliver_reports(Wait::yes);  // at most one measurement is pending, which limits how far the host runs ahead
  const auto steps = static_cast<double>(window_steps_);
  report.measured = StepMeasurements{.data_ms = loader_->take_wait_ms() / steps,
                                     .memory_bytes = parts_.device.memory().stats().peak_in_use};
  if (gradients_) report.measured->comm_ms = std::exchange(window_comm_ms_, 0) / steps;
  reports_.push_back(
      {.report = std::move(report),
       .measurement = Report::Measurement{.losses = loss_log_->take(),
                                          .window = timer_.take(),
                                          .seconds_before_pause = std::exchange(seconds_before_pause_, 0),
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
    const Report::Measurement& completed = *report.measurement;
    StepMeasurements& measured = *report.report.measured;
    if (completed.scale) measured.scale = completed.scale->state();
    take_losses(completed.losses, measured.scale);
    const double seconds = StepTimer::seconds(completed.window);
    state_.train_seconds += seconds;
    const double all_seconds = seconds + completed.seconds_before_pause;
    measured.loss = state_.last_loss;
    measured.average_loss = state_.loss.value();
    measured.images_per_second = static_cast<double>(completed.samples) / all_seconds;
    measured.step_ms = all_seconds * 1e3 / static_cast<double>(completed.steps);
    // On a GPU, the marks hold the times of the latest step, which is this step or a later one.
    if (gradients_ && parts_.device.kind() == DeviceKind::cuda)
      measured.comm_ms = step_->phases().communication;
  }
  if (callbacks_.on_step) callbacks_.on_step(report.report);
}

void Trainer::take_losses(const LossesInFlight& in_flight, const std::optional<LossScaler::State>& scale) {
  for (const LossesInFlight::Loss& loss : in_flight.losses()) {
    // If the loss overflows f16, the step is skipped and its loss is ignored.
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
  std::vector<NamedParameter> parameters;  // of this rank's shard with --zero
  for (const ParameterGroup& group : optimizer_->groups())
    parameters.insert(parameters.end(), group.parameters.begin(), group.parameters.end());
  const std::string layer = first_non_finite(shards_ ? parameters : parts_.model.parameters());
  fail<NumericError>(
      "gradients overflow f16 at step {} even with the minimum loss scale, {}{}, after {} skipped steps; "
      "lower --lr (now {}), set --clip-norm or use --precision bf16; {}",
      state_.step, scale.scale, layer.empty() ? "" : fmt::format(", the first in {}", layer), scale.skipped,
      *options_.lr, last_checkpoint());
}

std::string Trainer::last_checkpoint() const {
  return saved_step_ < 0 ? "there is no checkpoint yet"
                         : fmt::format("the checkpoint of step {} is intact", saved_step_);
}

void Trainer::synchronize() {
  timer_.pause();
  deliver_reports(Wait::yes);
  const std::optional<LossScaler::State> scale = scaler_ ? std::optional(scaler_->read()) : std::nullopt;
  take_losses(loss_log_->take(), scale);
  const double seconds = StepTimer::seconds(timer_.take());
  state_.train_seconds += seconds;
  seconds_before_pause_ += seconds;
  if (gradients_) gradients_->gather_parameters();
}

void Trainer::trace_step() {
  const bool is_gpu = parts_.device.kind() == DeviceKind::cuda;
  if (!is_gpu && !gradients_) return;  // on the CPU, the phases are ranges of the host
  TimeMark now(parts_.device);
  now.record();
  now.wait();  // blocks: a traced run may be slower
  const Profiler::Clock::time_point origin = Profiler::Clock::now();
  if (gradients_) trace_buckets(*parts_.profiler, gradients_->bucket_times(now), origin);
  if (!is_gpu) return;
  const TrainStep::Phases phases = step_->phases();
  const auto span = [](double ms) {
    return std::chrono::duration_cast<Profiler::Clock::duration>(
        std::chrono::duration<double, std::milli>(ms));
  };
  auto begin = origin - span(phases.forward + phases.backward + phases.communication + phases.optimizer);
  for (const auto& [name, category, ms] :
       {std::tuple("forward", "compute", phases.forward), std::tuple("backward", "compute", phases.backward),
        std::tuple("wait for gradients", "communication", phases.communication),
        std::tuple("optimizer", "compute", phases.optimizer)}) {
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
                                        .optimizer = phases.optimizer,
                                        .idle = step_ms - data_ms - phases.forward - phases.backward -
                                                phases.communication - phases.optimizer});
}

bool Trainer::evaluation_due() const {
  if (state_.evaluated && state_.evaluated->step == state_.step) return false;
  if (finished()) return true;
  return state_.step > 0 && state_.epoch_step == 0 && *options_.eval_every > 0 &&
         state_.epoch % *options_.eval_every == 0;
}

void Trainer::run_evaluation() {
  synchronize();
  const Profiler::Range range(parts_.profiler, "evaluation");
  combine_running_statistics();
  const Tensor& test_images = parts_.data.test.images;
  if (!resident_test_images_.defined() &&
      keep_data_on_device(options_.compute, parts_.device, test_images.bytes()))
    resident_test_images_ = test_images.to(parts_.device);
  const std::optional<Evaluation> evaluation = evaluate(
      parts_.model, parts_.device, parts_.data.test,
      {.transform = parts_.transform,
       .batch_size = options_.micro_batch_size > 0 ? options_.micro_batch_size : *options_.batch_size,
       .workers = static_cast<int>(options_.data.workers),
       .dtype = precision_.compute,
       .resident_images = resident_test_images_,
       .comm = parts_.control,
       .stop = [this] { return agree_on_stop() != 0; },
       .progress = callbacks_.on_evaluation_progress});
  if (!evaluation) return;  // stopped; a resumed run repeats the evaluation
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
  synchronize();
  check_parameters();
  combine_running_statistics();
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
  if (std::string algorithms = format_algorithm_cache(parts_.device); !algorithms.empty())
    manifest.extra[kAlgorithmsKey] = std::move(algorithms);
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
        "the parameters after step {} are not finite and are not saved; the last loss was {}; lower --lr "
        "(now {}) or set --clip-norm",
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
  const std::vector<Batch> batches = loader_->next_step();
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
