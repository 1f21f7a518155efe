#include "convoy/apps/train/trainer.h"

#include <cmath>
#include <utility>

#include "convoy/apps/common/plan_cache.h"
#include "convoy/apps/common/precision.h"
#include "convoy/apps/common/text.h"
#include "convoy/apps/train/setup.h"
#include "convoy/apps/train/trace.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/reduce.h"

namespace convoy {
namespace {

/// Returns null if the loss needs no scaling. Only f16 has so small a range that gradients underflow.
std::unique_ptr<optim::LossScaler> make_scaler(const TrainContext& context) {
  const Precision precision = parse_precision(context.options.precision);
  if (precision.compute != DType::f16) return nullptr;
  return std::make_unique<optim::LossScaler>(context.device, precision.parameters,
                                             loss_scale_settings(context.options));
}

/// Returns the mean loss of equal probabilities.
double chance_loss(const TrainContext& context) {
  return std::log(static_cast<double>(std::max<std::size_t>(context.data.classes.size(), 2)));
}

constexpr double kFarAboveChance = 5;  // times the loss of equal probabilities: only a training that diverges

}  // namespace

Trainer::Trainer(TrainContext context)
    : context_(std::move(context)),
      options_(context_.options),
      train_(context_.data.train),
      scaler_(make_scaler(context_)),
      parallel_(context_),
      stopping_({.patience = options_.patience, .max_loss = kFarAboveChance * chance_loss(context_)}),
      checkpoint_([this](std::int64_t, bool is_best) { save(is_best); },
                  {.every_steps = *options_.save_every, .keep_best = options_.keep_best}),
      saver_(context_.checkpoints, context_.control, context_.host_groups.is_first) {
  check(context_.observer != nullptr || !context_.is_distributed(),
        "training with {} ranks: found no observer of the job", context_.world_size());
  if (context_.observer == nullptr) context_.observer = &alone_;
  if (context_.continuation == nullptr) context_.continuation = &no_continuation_;
  const auto seed = static_cast<std::uint64_t>(options_.seed);
  if (options_.overfit_batch) train_ = first_batch(train_, *options_.batch_size, seed);
  if (train_.size() == 0) fail<DataError>("{}: no training images", context_.data.note);
  const std::int64_t samples = train_.size();
  const std::int64_t steps_per_epoch = (samples + *options_.batch_size - 1) / *options_.batch_size;
  total_steps_ = count_steps(options_, steps_per_epoch);
  check_batch_norms(context_.model,
                    {.samples = samples,
                     .global_batch = *options_.batch_size,
                     .micro_batch = options_.micro_batch_size,
                     .rank = context_.rank(),
                     .world_size = context_.world_size()},
                    total_steps_, context_.statistics != nullptr);
  check(options_.sampling == "uniform" || !train_.source,
        "--sampling {}: found images in shards, expected uniform", options_.sampling);
  const bool resident = keep_data_on_device(options_.compute, context_.device, train_);
  if (options_.profile > 0 || options_.memory)
    profile_.emplace(context_.device, std::max<std::int64_t>(options_.profile, 1), options_.memory,
                     total_steps_);
  loader_ = std::make_unique<data::DataLoader>(
      train_, data::LoaderOptions{.global_batch = *options_.batch_size,
                                  .micro_batch = options_.micro_batch_size,
                                  .rank = context_.rank(),
                                  .world_size = context_.world_size(),
                                  .seed = seed,
                                  .shuffle = !options_.overfit_batch,
                                  .balance = options_.sampling == "balanced" ? train_.labels : Tensor(),
                                  .transform = context_.transform,
                                  .dtype = parse_precision(options_.precision).compute,
                                  .workers = static_cast<int>(options_.data.workers),
                                  .max_epochs = (total_steps_ + steps_per_epoch - 1) / steps_per_epoch,
                                  .device = context_.device,
                                  .resident = resident,
                                  .defer_images = resident});
  rates_ = std::make_unique<LearningRates>(options_, total_steps_, steps_per_epoch);
  if (const auto* const plateau = std::get_if<PlateauSchedule>(&*options_.schedule))
    plateau_.emplace(*options_.lr, training::PlateauOptions{.factor = plateau->gamma,
                                                            .patience = plateau->patience,
                                                            .minimum = plateau->min_lr,
                                                            .threshold = plateau->threshold});
  if (options_.ema > 0) average_ = std::make_unique<optim::WeightAverage>(context_.model.root());
  step_ = std::make_unique<TrainStep>(context_, parallel_, scaler_.get(), *loader_, std::ssize(rates_->at(0)),
                                      profile_ ? &*profile_ : nullptr);
  reporter_ = std::make_unique<StepReporter>(context_, *step_, *loader_, scaler_.get(), total_steps_,
                                             [this](CompletedSteps& completed) { take_results(completed); });
}

std::optional<std::string> Trainer::resume(const io::Checkpoint& checkpoint) {
  const dist::PhaseScope phase(context_.observer, dist::Phase::load);
  parallel_.load(checkpoint, other_weights());
  if (average_) average_->swap();  // as save() does
  const TrainingState state = read_state(checkpoint.manifest, checkpoint.path);
  set_state(state, state.step);
  const std::string algorithms = value_at(checkpoint.manifest.extra, kAlgorithmsKey);
  if (algorithms.empty() || options_.compute.deterministic) return std::nullopt;
  const std::optional<std::string> problem = load_algorithm_cache(algorithms, context_.device);
  if (!problem) return std::nullopt;
  return fmt::format(
      "{}: the algorithm cache in its manifest {}; algorithms are autotuned again and may round differently",
      checkpoint.path.string(), *problem);
}

void Trainer::broadcast_state() {
  if (!context_.is_distributed()) return;
  parallel_.broadcast(other_weights());
  const std::vector<std::string> texts =
      parallel_.from_rank_zero({format_state(state()), std::to_string(checkpoint_.saved_step())});
  set_state(parse_state(texts[0]), std::stoll(texts[1]));
}

TrainingState Trainer::state() const {
  TrainingState state = state_;
  state.losses = losses_.state();
  state.stopping = stopping_.state();
  if (plateau_) state.plateau = plateau_->state();
  return state;
}

void Trainer::set_state(const TrainingState& state, std::int64_t saved_step) {
  state_ = state;
  losses_.restore(state.losses);
  stopping_.restore(state.stopping);
  if (plateau_ && state.plateau) plateau_->restore(*state.plateau);
  if (scaler_ && state.scale) scaler_->restore(*state.scale);
  checkpoint_.restore(saved_step);
}

// --- The loop ---

int Trainer::run() try {
  if (context_.is_traced()) step_->time_phases();
  if (average_ && state_.step == 0) average_->reset();
  freeze_ended();
  parallel_.connect();
  if (!finished()) loader_->seek(state_.epoch, state_.epoch_step);
  while (true) {
    report(saver_.poll());
    parallel_.check_errors();
    // Evaluations and checkpoints of this step precede the next step, so that a resumed run continues in the
    // same order.
    int signal = parallel_.agree_on_stop();
    if (signal == 0 && evaluation_due()) {
      run_evaluation();
      signal = parallel_.agree_on_stop();
    }
    const bool stopped = signal != 0;
    const bool is_due = checkpoint_.is_due(
        {.step = state_.step, .ends_epoch = state_.epoch_step == 0, .ends_training = finished()});
    if (is_due || (stopped && checkpoint_.saved_step() != state_.step)) checkpoint_.save(state_.step);
    if (stopped || finished()) {
      synchronize();  // delivers the remaining results
      const dist::PhaseScope phase(context_.observer, dist::Phase::save);
      report(saver_.finish());
    }
    if (finished()) parallel_.check_replicas(state_.step);
    if ((stopped || finished()) && profile_)
      if (const std::optional<std::string> problem = profile_->problem())
        callbacks_.call(&training::Callback::on_warning, state_.step, *problem);
    if (stopped) return signal;
    if (finished()) {
      if (average_) average_->swap();
      average_.reset();
      return 0;
    }
    context_.continuation->before_step(*this);
    take_step();
  }
} catch (const std::exception& error) {
  try {
    callbacks_.call(&training::Callback::on_exception, state_.step, error);
  } catch (const std::exception&) {  // such as of a full disk: the first error is the one to report
  }
  throw;
}

void Trainer::take_step() {
  reporter_->begin_step();
  std::vector<data::Batch> batches;
  {
    context_.observer->set_step(state_.step + 1);
    context_.observer->enter(dist::Phase::data);
    const Profiler::Range range(context_.profiler, "data wait", "data");
    batches = loader_->next_step();
    if (batches.empty()) batches = loader_->next_step();  // the previous epoch has ended
  }
  training::StepResult result{.step = state_.step + 1,
                              .epoch = state_.epoch,
                              .samples = batches.front().global_count,
                              .total_samples = state_.samples + batches.front().global_count};
  const std::vector<double> rates =
      plateau_ ? rates_->at(state_.step, plateau_->rate()) : rates_->at(state_.step);
  result.lr = rates.front();
  if (profile_) profile_->begin_step();
  const std::vector<MicroBatchResult>& results = step_->run(batches, rates, state_.step);
  if (profile_ && profile_->end_step()) report_profile();
  // The step is complete, so the position follows before anything else can fail.
  state_.advance(result.samples, loader_->steps_per_epoch());
  average_weights();
  context_.observer->enter(dist::Phase::between);
  report_warnings();
  if (context_.is_traced()) trace_step(context_, *step_, parallel_.reducer());

  reporter_->end_step(result, results);
  callbacks_.call(&training::Callback::on_progress, result.step, result.lr);
  // The rate of the next step depends on the losses of this epoch.
  if (follows_epochs() && state_.epoch_step == 0) synchronize();
  parallel_.verify_sums(state_.step);
  if (options_.check_replicas > 0 && state_.step % options_.check_replicas == 0)
    parallel_.check_replicas(state_.step);
  // Before a checkpoint of this step, which stores the bucket plan of the next one.
  if (!finished()) freeze_ended();
}

void Trainer::freeze_ended() {
  if (parallel_.sharded() != nullptr) return;  // the shards of all parameters have fixed places
  if (!rates_->freeze_ended(parallel_.optimizer().groups(), state_.step)) return;
  synchronize();  // the device may still replay a captured step
  step_->discard_captures();
  parallel_.reconnect();
}

void Trainer::average_weights() {
  if (!average_) return;
  parallel_.gather_parameters();
  // The first average: the initial values of running statistics are no estimates.
  if (state_.step == 1) average_->reset_buffers();
  average_->update(1 - optim::ema_decay(options_.ema, state_.step));
}

std::vector<optim::NamedState> Trainer::other_weights() const {
  return average_ ? average_->state("training") : std::vector<optim::NamedState>();
}

void Trainer::combine_running_statistics() {
  parallel_.combine_running_statistics(train_.size());
  if (!average_ || !context_.is_distributed()) return;
  const optim::SwappedWeights swapped(average_.get());
  parallel_.combine_running_statistics(train_.size());
}

// --- Results of steps ---

void Trainer::synchronize() {
  reporter_->synchronize();
  parallel_.gather_parameters();
  parallel_
      .check_errors();  // after a failed collective, the steps that the device has completed mean nothing
}

void Trainer::take_results(CompletedSteps& completed) {
  const std::optional<optim::LossScaler::State>& scale = completed.scale;
  state_.train_seconds += completed.seconds;
  state_.scale = scale;
  if (scale && scale->failed) {
    const std::string layer = optim::first_non_finite(parallel_.local_parameters());
    fail<NumericError>(
        "gradients overflow f16 at step {} even with the minimum loss scale, {}{}, after {} skipped steps; "
        "lower --lr (now {}), set --clip-norm or use --precision bf16; {}",
        state_.step, scale->scale, layer.empty() ? "" : fmt::format(", the first in {}", layer),
        scale->skipped, *options_.lr, last_checkpoint());
  }
  for (training::StepResult& result : completed.results) {
    const std::string problem = losses_.problem_of(result);
    // If the loss overflows f16, the step is skipped and its loss is ignored.
    if (!problem.empty() && !scale)
      fail<NumericError>("{}; lower --lr (now {}) or set --clip-norm; {}", problem, *options_.lr,
                         last_checkpoint());
    if (problem.empty()) {
      losses_.on_step(result);
      warn_if_far_above_chance(result.step, "training", losses_.last());
    }
    if (result.measured) {
      result.measured->loss = losses_.last();
      result.measured->average_loss = losses_.average();
    }
    callbacks_.on_step(result);
    if (result.step % steps_per_epoch() != 0) continue;
    training::EpochResult epoch = losses_.end_epoch();
    if (epoch.samples == 0) continue;  // all steps overflow
    epoch.epoch = result.epoch;
    epoch.step = result.step;  // whose loss may overflow
    if (follows_epochs()) plateau_->add(epoch.loss);
    callbacks_.on_epoch(epoch);
  }
}

void Trainer::warn_if_far_above_chance(std::int64_t step, std::string_view what, double loss) {
  const double chance = chance_loss(context_);
  if (loss <= kFarAboveChance * chance || std::exchange(warned_of_loss_, true)) return;
  callbacks_.call(
      &training::Callback::on_warning, step,
      fmt::format("the {} loss of step {} is {}, far above {:.2f}, that of equal probabilities; lower "
                  "--lr (now {})",
                  what, step, format_loss(loss), chance, *options_.lr));
}

void Trainer::report_warnings() {
  std::vector<std::string> warnings = context_.device.take_warnings();
  if (auto warning = step_->take_warning()) warnings.push_back(std::move(*warning));
  for (const std::string& warning : warnings) {
    callbacks_.call(&training::Callback::on_warning, state_.step, warning);
    context_.observer->warn(warning);
  }
  for (const std::string& warning : context_.observer->take_warnings())
    callbacks_.call(&training::Callback::on_warning, state_.step, warning);
}

std::string Trainer::last_checkpoint() {
  const std::int64_t step = end_save_alone();
  return step < 0 ? "there is no checkpoint yet" : fmt::format("the checkpoint of step {} is intact", step);
}

void Trainer::report_profile() const {
  if (context_.rank() > 0) return;
  std::string text = format_profile(*profile_);
  if (const std::optional<MemoryPeak> peak = profile_->peak())
    text.append("\n").append(
        format_memory(*peak, {{"parameters and buffers", bytes_of(context_.model.root())},
                              {"optimizer state", parallel_.optimizer_bytes()},
                              {"gradients", parallel_.gradient_bytes()}}));
  io::write_file_atomically(std::filesystem::path(*options_.out) / "profile.json", profile_trace(*profile_));
  callbacks_.call(&training::Callback::on_profile, text);
}

// --- Evaluations ---

bool Trainer::evaluation_due() const {
  if (state_.evaluated && state_.evaluated->step == state_.step) return false;
  if (finished()) return true;
  return state_.step > 0 && state_.epoch_step == 0 && *options_.eval_every > 0 &&
         state_.epoch % *options_.eval_every == 0;
}

std::optional<Evaluation> Trainer::evaluate_now(const data::ImageSet& set, bool views) {
  const dist::PhaseScope phase(context_.observer, dist::Phase::evaluation);
  synchronize();
  const Profiler::Range range(context_.profiler, "evaluation");
  combine_running_statistics();
  const optim::SwappedWeights swapped(average_.get());
  if (resident_set_ != &set) {
    resident_images_ = {};
    if (keep_data_on_device(options_.compute, context_.device, set))
      resident_images_ = set.images.to(context_.device);
    resident_set_ = &set;
  }
  std::optional<Evaluation> evaluation = evaluate(
      context_.model, context_.device, set,
      {.transform = context_.transform,
       .views = views,
       .batch_size = options_.micro_batch_size > 0 ? options_.micro_batch_size : *options_.batch_size,
       .workers = static_cast<int>(options_.data.workers),
       .dtype = parse_precision(options_.precision).compute,
       .resident_images = resident_images_,
       .comm = context_.control,
       .stop = [this] { return parallel_.agree_on_stop() != 0; },
       .progress =
           [this](std::int64_t done, std::int64_t count) {
             callbacks_.call(&training::Callback::on_evaluation_progress, done, count);
           }});
  report_warnings();
  return evaluation;
}

void Trainer::run_evaluation() {
  std::optional<Evaluation> evaluation = evaluate_now(context_.data.evaluated(), /*views=*/false);
  if (!evaluation) return;  // stopped; a resumed run repeats the evaluation
  evaluation_ = std::move(evaluation);
  training::EvaluationResult result{.step = state_.step,
                                    .accuracy = evaluation_->accuracy,
                                    .loss = evaluation_->loss,
                                    .count = evaluation_->count};
  warn_if_far_above_chance(state_.step, context_.data.validation.size() > 0 ? "validation" : "test",
                           result.loss);
  stopping_.on_evaluation(result);
  result.is_best = stopping_.is_best();
  state_.evaluated = result;
  if (plateau_ && !follows_epochs()) plateau_->on_evaluation(result);
  checkpoint_.set_best(result.is_best);
  callbacks_.on_evaluation(result);
}

double Trainer::try_batch() {
  loader_->seek(state_.epoch, state_.epoch_step);
  return step_->evaluate(loader_->next_step().front());
}

std::vector<double> Trainer::try_rates(const std::vector<double>& rates,
                                       const std::function<bool(double loss)>& goes_on) {
  const dist::PhaseScope phase(context_.observer, dist::Phase::forward);
  parallel_.connect();
  loader_->seek(0, 0);
  std::vector<double> losses;
  for (const double rate : rates) {
    std::vector<data::Batch> batches = loader_->next_step();
    if (batches.empty()) batches = loader_->next_step();  // the previous epoch has ended
    const auto& results =
        step_->run(batches, std::vector<double>(rates_->at(0).size(), rate), std::ssize(losses));
    double loss = 0;
    for (const MicroBatchResult& result : results) loss += result.loss.to(DType::f64).item();
    if (context_.is_distributed()) dist::all_reduce_and_wait(*context_.control, {&loss, {1}, DType::f64});
    losses.push_back(loss);
    if (!goes_on(loss)) break;
  }
  synchronize();
  return losses;
}

// --- Checkpoints ---

void Trainer::save(bool is_best) {
  const dist::PhaseScope phase(context_.observer, dist::Phase::save);
  const Profiler::Range range(context_.profiler, "save", "io");
  report(saver_.finish());  // one at a time
  synchronize();
  check_parameters();
  combine_running_statistics();
  const optim::SwappedWeights swapped(average_.get());
  io::Snapshot state = parallel_.snapshot();
  state.other_weights = other_weights();
  if (parallel_.sharded() != nullptr && !saver_.can_write_shards()) {
    state.shard = {};
    state.optimizer = parallel_.sharded()->gather();
  }
  saver_.start(state, make_manifest(), is_best);
}

std::int64_t Trainer::end_save_alone() {
  if (saver_.shards_pending()) checkpoint_.withdraw();
  report(saver_.finish_alone());
  return checkpoint_.saved_step();
}

void Trainer::report(const std::optional<training::SavedCheckpoint>& save) const {
  if (save) callbacks_.call(&training::Callback::on_save, *save);
}

io::Manifest Trainer::make_manifest() const {
  io::Manifest manifest;
  if (context_.rank() > 0) return manifest;
  manifest.model = context_.model.name();
  manifest.extra = context_.extra;
  if (std::string algorithms = format_algorithm_cache(context_.device); !algorithms.empty())
    manifest.extra[kAlgorithmsKey] = std::move(algorithms);
  parallel_.write_plan(manifest);
  write_state(state(), manifest, context_.data.validation.size() > 0 ? "validation" : "test");
  return manifest;
}

void Trainer::check_parameters() {
  std::vector<ConstView> views;
  for (const nn::NamedParameter& parameter : context_.model.parameters()) {
    parameter.variable.wait_ready();
    views.push_back(parameter.variable.value().view());
  }
  const Tensor norm = Tensor::empty({1}, DType::f64, context_.device);
  on(context_.device.stream(), [&](auto& s) { kernels::global_norm(s, views, norm.view()); });
  if (!std::isfinite(norm.item()))
    fail<NumericError>(
        "the parameters after step {} are not finite and are not saved; the last loss was {}; lower --lr "
        "(now {}) or set --clip-norm",
        state_.step, losses_.last(), *options_.lr);
}

}  // namespace convoy
