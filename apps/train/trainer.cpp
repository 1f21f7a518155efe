#include "convoy/apps/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "convoy/apps/common/plan_cache.h"
#include "convoy/apps/train/setup.h"
#include "convoy/apps/train/trace.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

/// Returns null if the loss needs no scaling. Only f16 has so small a range that gradients underflow.
std::unique_ptr<optim::LossScaler> make_scaler(const TrainOptions& options, const Precision& precision,
                                               const DeviceContext& device) {
  if (precision.compute != DType::f16) return nullptr;
  return std::make_unique<optim::LossScaler>(device, precision.parameters, loss_scale_settings(options));
}

}  // namespace

Trainer::Trainer(const TrainOptions& options, TrainerParts parts)
    : options_(options),
      parts_(std::move(parts)),
      precision_(parse_precision(options.precision)),
      train_(parts_.data.train),
      scaler_(make_scaler(options, precision_, parts_.device)),
      parallel_(options_, parts_, precision_.compute),
      stopping_({.patience = options_.patience}),
      checkpoint_([this](std::int64_t, bool is_best) { save(is_best); },
                  {.every_steps = *options_.save_every, .keep_best = options_.keep_best}),
      saver_(parts_.checkpoints, parts_.control) {
  const auto seed = static_cast<std::uint64_t>(options_.seed);
  if (options_.overfit_batch) train_ = first_batch(train_, *options_.batch_size, seed);
  if (train_.size() == 0) fail<DataError>("{}: no training images", parts_.data.note);
  Tensor order;
  if (!options_.selection.empty()) order = selected_order(options_.selection, train_);
  const std::int64_t samples = order.defined() ? order.size(1) : train_.size();
  const std::int64_t steps_per_epoch = (samples + *options_.batch_size - 1) / *options_.batch_size;
  total_steps_ = count_steps(options_, steps_per_epoch);
  if (options_.hardest < 1)
    selection_.emplace(*options_.out, options_.hardest, *options_.batch_size, train_, options_.seed,
                       total_steps_, parts_.device);
  const bool resident = keep_data_on_device(options_.compute, parts_.device, train_.images.bytes());
  loader_ = std::make_unique<data::DataLoader>(
      train_, data::LoaderOptions{.global_batch = *options_.batch_size,
                                  .micro_batch = options_.micro_batch_size,
                                  .rank = parts_.rank(),
                                  .world_size = parts_.world_size(),
                                  .seed = seed,
                                  .shuffle = !options_.overfit_batch,
                                  .order = order,
                                  .transform = parts_.transform,
                                  .dtype = precision_.compute,
                                  .workers = static_cast<int>(options_.data.workers),
                                  .max_epochs = (total_steps_ + steps_per_epoch - 1) / steps_per_epoch,
                                  .device = parts_.device,
                                  .resident = resident,
                                  .defer_images = resident});
  rates_ = std::make_unique<LearningRates>(options_, total_steps_, steps_per_epoch);
  if (const auto* const plateau = std::get_if<PlateauSchedule>(&*options_.schedule))
    plateau_.emplace(peak_rate(options_), training::PlateauOptions{.factor = plateau->gamma,
                                                                   .patience = plateau->patience,
                                                                   .minimum = plateau->min_lr,
                                                                   .threshold = plateau->threshold});
  if (options_.ema > 0 || options_.lookahead > 0)
    average_ = std::make_unique<optim::WeightAverage>(parts_.model.root());
  if (options_.profile > 0 || options_.memory)
    profile_.emplace(parts_.device, std::max<std::int64_t>(options_.profile, 1), options_.memory,
                     total_steps_);
  step_ = std::make_unique<TrainStep>(
      parts_.model, parallel_.optimizer(), scaler_.get(), *loader_, parts_.device,
      TrainStepSettings{
          .seed = seed,
          .label_smoothing = *options_.label_smoothing,
          .hardest = options_.hardest,
          .count_correct = !options_.augmentation.mixes_labels(),
          .sum_loss = options_.loss_reduction == "sum",
          .clip_norm = options_.clip_norm > 0 ? std::optional(options_.clip_norm) : std::nullopt,
          .dtype = precision_.compute,
          .loss_dtype = precision_.parameters,
          .rates = std::ssize(rates_->at(0)),
          .capture = use_cuda_graph(options_.compute, parts_.device),
          .run_empty_batches = parts_.statistics != nullptr,
          .profiler = parts_.profiler,
          .profile = profile_ ? &*profile_ : nullptr,
          .plane = parts_.plane});
  reporter_ = std::make_unique<StepReporter>(
      StepSources{.device = parts_.device,
                  .step = *step_,
                  .losses = losses_,
                  .loader = *loader_,
                  .scaler = scaler_.get(),
                  .gradients = parts_.gradients},
      StepReporterOptions{
          .log_every = options_.log_every, .total_steps = total_steps_, .loss_dtype = precision_.parameters},
      [this](const CompletedSteps& completed) { take_results(completed); });
}

std::optional<std::string> Trainer::resume(const io::Checkpoint& checkpoint) {
  const dist::PhaseScope phase(parts_.plane, dist::Phase::load);
  parallel_.load(checkpoint, other_weights());
  if (optim::WeightAverage* const average = evaluated_average()) average->swap();  // as save() does
  const io::Manifest& manifest = checkpoint.manifest;
  set_state(read_state(manifest, checkpoint.path));
  checkpoint_.restore(state_.step);
  // A checkpoint is RUN/checkpoints/step_000123.
  if (selection_) selection_->load(checkpoint.path.parent_path().parent_path(), state_.step);
  const auto algorithms = manifest.extra.find(kAlgorithmsKey);
  if (algorithms == manifest.extra.end() || options_.compute.deterministic) return std::nullopt;
  const std::optional<std::string> problem = load_algorithm_cache(algorithms->second, parts_.device);
  if (!problem) return std::nullopt;
  return fmt::format(
      "{}: the algorithm cache in its manifest {}; algorithms are autotuned again and may round differently",
      checkpoint.path.string(), *problem);
}

void Trainer::broadcast_state() {
  if (parts_.world_size() == 1) return;
  parallel_.broadcast(other_weights());
  set_state(parse_state(parallel_.from_rank_zero(format_state(state()))));
  checkpoint_.restore(std::stoll(parallel_.from_rank_zero(std::to_string(checkpoint_.saved_step()))));
}

TrainingState Trainer::state() const {
  TrainingState state = state_;
  state.train_seconds = times_.total().seconds;
  state.losses = losses_.state();
  state.stopping = stopping_.state();
  if (plateau_) state.plateau = plateau_->state();
  return state;
}

void Trainer::set_state(const TrainingState& state) {
  state_ = state;
  times_.restore({.seconds = state.train_seconds});
  losses_.restore(state.losses);
  stopping_.restore(state.stopping);
  if (plateau_ && state.plateau) plateau_->restore(*state.plateau);
  if (scaler_ && state.scale) scaler_->restore(*state.scale);
}

template <class Function>
bool Trainer::has(Function TrainerCallbacks::*function) const {
  return std::any_of(callbacks_.begin(), callbacks_.end(),
                     [&](const TrainerCallbacks& each) { return each.*function != nullptr; });
}

int Trainer::run() {
  try {
    return run_steps();
  } catch (const std::exception& error) {
    try {
      call(&TrainerCallbacks::on_exception, state_.step, error);
    } catch (const std::exception&) {  // such as of a full disk: the first error is the one to report
    }
    throw;
  }
}

int Trainer::run_steps() {
  if (parts_.is_traced() || has(&TrainerCallbacks::on_parts)) step_->time_phases();
  StepReporter::OnParts on_parts;  // not set without need, because it blocks each step
  if (has(&TrainerCallbacks::on_parts))
    on_parts = [this](std::int64_t step, const StepParts& parts) {
      call(&TrainerCallbacks::on_parts, step, parts);
    };
  reporter_->set_callbacks(
      [this](const StepReport& report) {
        call(&TrainerCallbacks::on_step, report);
        report_epochs();
      },
      std::move(on_parts));
  if (average_ && state_.step == 0) average_->reset();
  freeze_ended();
  parallel_.connect(*step_);
  if (!finished()) loader_->seek(state_.epoch, state_.epoch_step);
  while (true) {
    report(saver_.poll());
    check_peers();
    // Evaluations and checkpoints of this step precede the next step, so that a resumed run continues in the
    // same order.
    int signal = parallel_.agree_on_stop();
    if (signal == 0 && evaluation_due()) {
      run_evaluation();
      signal = parallel_.agree_on_stop();
    }
    const bool stopped = signal != 0;
    if (checkpoint_.is_due(position()) || (stopped && checkpoint_.saved_step() != state_.step))
      checkpoint_.save(state_.step);
    if (stopped || finished()) {
      synchronize();  // delivers the remaining reports
      const dist::PhaseScope phase(parts_.plane, dist::Phase::save);
      report(saver_.finish());
    }
    if (finished()) parallel_.check_replicas(state_.step);
    if ((stopped || finished()) && profile_)
      if (const std::optional<std::string> problem = profile_->problem())
        call(&TrainerCallbacks::on_warning, state_.step, *problem);
    if (stopped) return signal;
    if (finished()) {
      if (optim::WeightAverage* const average = evaluated_average()) average->swap();
      average_.reset();
      return 0;
    }
    if (keeps_recovery_points() && (recovery_points_.empty() || state_.step % options_.snapshot_every == 0))
      take_recovery_point();
    take_step();
  }
}

void Trainer::take_step() {
  using Clock = std::chrono::steady_clock;
  if (parts_.may_regroup && !keeps_recovery_points()) keep_buffers();
  reporter_->begin_step();
  std::vector<data::Batch> batches;
  const auto data_begin = Clock::now();
  {
    if (parts_.plane != nullptr) parts_.plane->set_step(state_.step + 1);
    dist::enter(parts_.plane, dist::Phase::data);
    const Profiler::Range range(parts_.profiler, "data wait", "data");
    batches = loader_->next_step();
    if (batches.empty()) batches = loader_->next_step();  // the previous epoch has ended
  }
  const std::chrono::duration<double, std::milli> data_time = Clock::now() - data_begin;
  const std::int64_t samples = batches.front().global_count;
  const std::vector<double> rates =
      plateau_ ? rates_->at(state_.step, plateau_->rate()) : rates_->at(state_.step);
  if (reporter_->full(batches.size())) synchronize();
  if (profile_) profile_->begin_step();
  const std::vector<MicroBatchResult>& results = step_->run(batches, rates);
  if (profile_ && profile_->end_step()) report_profile();
  if (selection_) selection_->record(batches.front(), step_->hardest_ids());
  // The step is complete, so the position follows before anything else can fail.
  const std::int64_t epoch = state_.epoch;
  state_.advance(samples, loader_->steps_per_epoch());
  buffers_before_step_.clear();
  average_weights();
  reporter_->add_results({.step = state_.step, .epoch = epoch, .samples = samples}, results);
  dist::enter(parts_.plane, dist::Phase::between);
  report_warnings();
  if (parts_.is_traced()) trace_step(*parts_.profiler, parts_.device, *step_, parallel_.reducer());

  reporter_->end_step(
      {.step = state_.step, .epoch = epoch, .samples = state_.samples, .lr = rates.front(), .measured = {}},
      data_time.count());
  // The rate of the next step depends on the losses of this epoch.
  if (follows_epochs() && state_.epoch_step == 0) synchronize();
  parallel_.verify_sums(state_.step);
  if (options_.check_replicas > 0 && state_.step % options_.check_replicas == 0)
    parallel_.check_replicas(state_.step);
  // Before a checkpoint of this step, which stores the bucket plan of the next one.
  if (!finished()) freeze_ended();
}

void Trainer::freeze_ended() {
  if (parallel_.is_sharded()) return;  // the shards of all parameters have fixed places
  if (!rates_->freeze_ended(parallel_.optimizer().groups(), state_.step)) return;
  synchronize();  // the device may still replay a captured step
  step_->discard_captures();
  parallel_.reconnect(*step_);
}

void Trainer::average_weights() {
  const bool is_ema = options_.ema > 0;
  const bool is_due =
      is_ema || (options_.lookahead > 0 && (state_.step % options_.lookahead == 0 || finished()));
  if (!is_due) return;
  parallel_.gather_parameters();
  average_->update(is_ema ? 1 - optim::ema_decay(options_.ema, state_.step) : *options_.lookahead_alpha);
  if (!is_ema) average_->write_back();
}

std::vector<optim::NamedState> Trainer::other_weights() const {
  if (!average_) return {};
  return average_->state(options_.ema > 0 ? "training" : "slow");
}

void Trainer::combine_running_statistics() {
  parallel_.combine_running_statistics(train_.size());
  if (!average_ || parts_.world_size() == 1) return;
  const optim::SwappedWeights swapped(average_.get());
  parallel_.combine_running_statistics(train_.size());
}

void Trainer::report_warnings() {
  std::vector<std::string> warnings = parts_.device.take_warnings();
  if (auto warning = step_->take_warning()) warnings.push_back(std::move(*warning));
  for (const std::string& warning : warnings) {
    call(&TrainerCallbacks::on_warning, state_.step, warning);
    if (parts_.plane != nullptr) parts_.plane->warn(warning);
  }
}

/// Throws the error of a collective that has failed. The host launches replays of a captured step without waiting for
/// them, so no other call would notice.
void Trainer::check_peers() const {
  if (parts_.gradients != nullptr) parts_.gradients->check_errors();
}

void Trainer::take_results(const CompletedSteps& completed) {
  const std::optional<optim::LossScaler::State>& scale = completed.scale;
  for (const training::StepResult& result : completed.results) {
    const std::string problem = losses_.problem_of(result);
    // If the loss overflows f16, the step is skipped and its loss is ignored.
    if (!problem.empty() && !scale)
      fail<NumericError>("{}; lower --lr (now {}) or set --clip-norm; {}", problem, *options_.lr,
                         last_checkpoint());
    if (problem.empty()) losses_.on_step(result);
    if (result.step % steps_per_epoch() == 0) end_epoch(result);
  }
  times_.add(completed.times);
  state_.scale = scale;
  if (scale && scale->failed) fail_scaling(*scale);
}

void Trainer::end_epoch(const training::StepResult& last) {
  training::EpochResult epoch = losses_.end_epoch();
  if (epoch.samples == 0) return;  // all steps overflow
  epoch.epoch = last.epoch;
  epoch.step = last.step;  // whose loss may overflow
  ended_epochs_.push_back(epoch);
  if (follows_epochs()) plateau_->add(epoch.loss);
}

void Trainer::report_epochs() {
  for (const training::EpochResult& epoch : std::exchange(ended_epochs_, {}))
    call(&TrainerCallbacks::on_epoch, epoch);
}

void Trainer::fail_scaling(const optim::LossScaler::State& scale) {
  const std::string layer = optim::first_non_finite(parallel_.local_parameters());
  fail<NumericError>(
      "gradients overflow f16 at step {} even with the minimum loss scale, {}{}, after {} skipped steps; "
      "lower --lr (now {}), set --clip-norm or use --precision bf16; {}",
      state_.step, scale.scale, layer.empty() ? "" : fmt::format(", the first in {}", layer), scale.skipped,
      *options_.lr, last_checkpoint());
}

std::string Trainer::last_checkpoint() {
  end_save_alone();
  const std::int64_t step = checkpoint_.saved_step();
  return step < 0 ? "there is no checkpoint yet" : fmt::format("the checkpoint of step {} is intact", step);
}

void Trainer::synchronize() {
  reporter_->synchronize();
  report_epochs();
  parallel_.gather_parameters();
  check_peers();  // after a failed collective, the steps that the device has completed mean nothing
}

bool Trainer::evaluation_due() const {
  if (state_.evaluated && state_.evaluated->step == state_.step) return false;
  if (finished()) return true;
  return state_.step > 0 && state_.epoch_step == 0 && *options_.eval_every > 0 &&
         state_.epoch % *options_.eval_every == 0;
}

std::optional<Evaluation> Trainer::evaluate_now(const data::ImageSet& set, bool views) {
  const dist::PhaseScope phase(parts_.plane, dist::Phase::evaluation);
  synchronize();
  const Profiler::Range range(parts_.profiler, "evaluation");
  combine_running_statistics();
  const optim::SwappedWeights swapped(evaluated_average());
  if (resident_set_ != &set) {
    resident_images_ = {};
    if (keep_data_on_device(options_.compute, parts_.device, set.images.bytes()))
      resident_images_ = set.images.to(parts_.device);
    resident_set_ = &set;
  }
  std::optional<Evaluation> evaluation = evaluate(
      parts_.model, parts_.device, set,
      {.transform = parts_.transform,
       .views = views,
       .batch_size = options_.micro_batch_size > 0 ? options_.micro_batch_size : *options_.batch_size,
       .workers = static_cast<int>(options_.data.workers),
       .dtype = precision_.compute,
       .resident_images = resident_images_,
       .comm = parts_.control,
       .stop = [this] { return parallel_.agree_on_stop() != 0; },
       .progress =
           [this](std::int64_t done, std::int64_t count) {
             call(&TrainerCallbacks::on_evaluation_progress, done, count);
           }});
  report_warnings();
  return evaluation;
}

void Trainer::run_evaluation() {
  const std::optional<Evaluation> evaluation = evaluate_now(parts_.data.evaluated(), /*views=*/false);
  if (!evaluation) return;  // stopped; a resumed run repeats the evaluation
  state_.evaluated = {.step = state_.step,
                      .accuracy = evaluation->accuracy,
                      .loss = evaluation->loss,
                      .count = evaluation->count};
  stopping_.on_evaluation(*state_.evaluated);
  if (plateau_ && !follows_epochs()) plateau_->on_evaluation(*state_.evaluated);
  checkpoint_.set_best(stopping_.is_best());
  call(&TrainerCallbacks::on_evaluation, state_.step, *evaluation, stopping_.is_best());
}

void Trainer::report_profile() {
  if (parts_.rank() > 0) return;
  std::string text = format_profile(*profile_);
  if (const std::optional<MemoryPeak> peak = profile_->peak())
    text.append("\n").append(format_memory(*peak, {{"parameters and buffers", bytes_of(parts_.model.root())},
                                                   {"optimizer state", optimizer_bytes()},
                                                   {"gradients", gradient_bytes()}}));
  io::write_file_atomically(std::filesystem::path(*options_.out) / "profile.json", profile_trace(*profile_));
  call(&TrainerCallbacks::on_profile, text);
}

double Trainer::try_batch() {
  loader_->seek(state_.epoch, state_.epoch_step);
  return step_->evaluate(loader_->next_step().front());
}

}  // namespace convoy
