#include "apps/trainer.h"

#include <chrono>
#include <cmath>

#include "engine/autograd/backward.h"
#include "engine/ops/ops.h"
#include "kernels/reduce.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

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

}  // namespace

Trainer::Trainer(const TrainOptions& options, TrainerParts parts)
    : options_(options), parts_(std::move(parts)), train_(parts_.data.train) {
  const auto seed = static_cast<std::uint64_t>(options_.seed);
  if (options_.overfit_batch) train_ = first_batch(train_, *options_.batch_size, seed);
  if (train_.size() == 0) fail<DataError>("{}: no training images", parts_.data.note);
  const std::int64_t steps_per_epoch = (train_.size() + *options_.batch_size - 1) / *options_.batch_size;
  total_steps_ = count_steps(options_, steps_per_epoch);
  loader_ = std::make_unique<DataLoader>(
      train_,
      LoaderOptions{.global_batch = *options_.batch_size,
                    .micro_batch = options_.micro_batch_size,
                    .seed = seed,
                    .shuffle = !options_.overfit_batch,
                    .transform = parts_.transform,
                    .dtype = parse_precision(options_.precision),
                    .workers = static_cast<int>(options_.data.workers),
                    .max_epochs = (total_steps_ + steps_per_epoch - 1) / steps_per_epoch,
                    .device = parts_.device,
                    .resident = keeps_on_device(options_.compute, parts_.device, train_.images.bytes())});
  optimizer_ =
      make_optimizer(options_.optimizer, decay_groups(parts_.model.parameters(), *options_.weight_decay),
                     {.momentum = options_.momentum, .nesterov = options_.nesterov.value_or(false)});
  const auto warmup = std::llround(*options_.warmup * static_cast<double>(total_steps_));
  schedule_ = make_schedule(*options_.schedule, {.peak = *options_.lr,
                                                 .steps = total_steps_,
                                                 .warmup = std::min<std::int64_t>(warmup, total_steps_ - 1)});
}

void Trainer::resume(const std::filesystem::path& checkpoint) {
  const Manifest manifest = load_checkpoint(checkpoint, parts_.model.root(), optimizer_.get());
  state_ = read_state(manifest, checkpoint);
  saved_step_ = state_.step;
}

int Trainer::run(TrainerCallbacks callbacks) {
  callbacks_ = std::move(callbacks);
  if (!finished()) loader_->seek(state_.epoch, state_.epoch_step);
  while (true) {
    // What is due at this step comes before the next one, so that a resume from here finds the same duties.
    const int signal = parts_.stop_signal ? parts_.stop_signal() : 0;
    if (signal == 0 && evaluation_due()) run_evaluation();
    const bool stopped = parts_.stop_signal && parts_.stop_signal() != 0;
    if (save_due() || (stopped && saved_step_ != state_.step)) save();
    if (stopped) return parts_.stop_signal();
    if (finished()) return 0;
    take_step();
  }
}

void Trainer::take_step() {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Batch> batches;
  {
    const Profiler::Range range(parts_.profiler, "data wait", "data");
    batches = loader_->next_update();
    if (batches.empty()) batches = loader_->next_update();  // the end of an epoch was passed
  }
  const std::int64_t samples = batches.front().global_count;
  compute_gradients(batches);
  const double lr = schedule_(state_.step);
  {
    const Profiler::Range range(parts_.profiler, "optimizer");
    optimizer_->step(lr, options_.clip_norm > 0 ? std::optional(options_.clip_norm) : std::nullopt);
  }
  // A GPU works behind the host; a rate that is about to be reported counts steps that are done.
  const bool epoch_ends = state_.epoch_step + 1 == loader_->steps_per_epoch();
  if (epoch_ends || is_reported(state_.step + 1)) parts_.device.synchronize();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  window_seconds_ += elapsed.count();
  state_.train_seconds += elapsed.count();
  finish_step(samples, lr);
}

void Trainer::compute_gradients(const std::vector<Batch>& batches) {
  PendingLoss pending{.step = state_.step + 1, .parts = {}};
  for (std::size_t k = 0; k < batches.size(); ++k) {
    const Batch& batch = batches[k];
    const Pass pass{.training = true,
                    .seed = static_cast<std::uint64_t>(options_.seed),
                    .epoch = batch.epoch,
                    .sample_ids = batch.ids};
    Variable loss;
    {
      const Profiler::Range range(parts_.profiler, "forward");
      loss = cross_entropy_sum(parts_.model(batch.images, pass), batch.labels, *options_.label_smoothing) /
             static_cast<double>(batch.global_count);
    }
    const Profiler::Range range(parts_.profiler, "backward");
    backward(loss, {.accumulate = k > 0});
    pending.parts.push_back(loss.value());
  }
  pending_.push_back(std::move(pending));
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
  StepReport report{.step = state_.step, .epoch = epoch, .samples = state_.samples, .lr = lr, .measured = {}};
  if (is_reported(state_.step)) report.measured = measure();
  if (callbacks_.on_step) callbacks_.on_step(report);
  if (epoch_ends && callbacks_.on_epoch) callbacks_.on_epoch(epoch);
}

bool Trainer::is_reported(std::int64_t step) const {
  return step % options_.log_every == 0 || step >= total_steps_;
}

StepMeasurements Trainer::measure() {
  read_losses();
  const auto steps = static_cast<double>(window_steps_);
  const StepMeasurements measured{
      .loss = state_.last_loss,
      .average_loss = state_.loss.value(),
      .images_per_second = static_cast<double>(window_samples_) / window_seconds_,
      .step_ms = window_seconds_ * 1e3 / steps,
      .data_ms = loader_->take_wait_ms() / steps,
      .memory_bytes = parts_.device.memory().stats().peak_in_use,
  };
  window_steps_ = window_samples_ = 0;
  window_seconds_ = 0;
  return measured;
}

void Trainer::read_losses() {
  for (const PendingLoss& pending : pending_) {
    double loss = 0;
    for (const Tensor& part : pending.parts) loss += part.item();
    if (!std::isfinite(loss))
      fail<NumericError>(
          "the loss of step {} is {}{}; lower --lr (now {}) or set --clip-norm; {}", pending.step, loss,
          pending.step > 1 ? fmt::format(", after {} at step {}", state_.last_loss, pending.step - 1) : "",
          *options_.lr,
          saved_step_ < 0 ? "there is no checkpoint yet"
                          : fmt::format("the checkpoint of step {} is intact", saved_step_));
    state_.last_loss = loss;
    state_.loss.add(loss);
  }
  pending_.clear();
}

bool Trainer::evaluation_due() const {
  if (state_.evaluated && state_.evaluated->step == state_.step) return false;
  if (finished()) return true;
  return state_.step > 0 && state_.epoch_step == 0 && *options_.eval_every > 0 &&
         state_.epoch % *options_.eval_every == 0;
}

void Trainer::run_evaluation() {
  read_losses();
  const Profiler::Range range(parts_.profiler, "evaluation");
  const std::optional<Evaluation> evaluation = evaluate(
      parts_.model, parts_.device, parts_.data.test,
      {.transform = parts_.transform,
       .batch_size = options_.micro_batch_size > 0 ? options_.micro_batch_size : *options_.batch_size,
       .workers = static_cast<int>(options_.data.workers),
       .dtype = parse_precision(options_.precision),
       .data_on_device = keeps_on_device(options_.compute, parts_.device, parts_.data.test.images.bytes()),
       .stop = [this] { return parts_.stop_signal && parts_.stop_signal() != 0; },
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
  read_losses();
  check_parameters();
  const Profiler::Range range(parts_.profiler, "save", "io");
  Manifest manifest;
  manifest.model = parts_.model.name();
  manifest.extra = parts_.extra;
  write_state(state_, manifest);
  const std::filesystem::path path =
      parts_.checkpoints.save(parts_.model.root(), *optimizer_, manifest, best_unsaved_);
  saved_step_ = state_.step;
  best_unsaved_ = false;
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

double Trainer::try_batch() {
  const NoGrad no_grad;
  loader_->seek(state_.epoch, state_.epoch_step);
  const std::vector<Batch> batches = loader_->next_update();
  const Batch& batch = batches.front();
  const double sum = cross_entropy_sum(parts_.model(batch.images), batch.labels).value().item();
  return sum / static_cast<double>(batch.images.size(0));
}

}  // namespace convoy
