#include "convoy/apps/train/train_step.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "convoy/apps/train/options/class_weights.h"
#include "convoy/comm/parallel/broadcast.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/augment.h"
#include "convoy/kernels/base/check.h"

namespace convoy {

/// The CUDA graph of a step and its input tensors. The results are stored in the graph's memory pool.
struct TrainStep::CapturedStep {
  std::unique_ptr<CudaGraph> graph;  // null before the capture
  std::vector<data::Batch> inputs;
  std::vector<MicroBatchResult> results;

  /// Returns the copies of the batches to the inputs.
  std::vector<kernels::Assignment> copies(const std::vector<data::Batch>& batches) const {
    std::vector<kernels::Assignment> all;
    for (std::size_t k = 0; k < batches.size(); ++k) {
      const data::Batch& from = batches[k];
      for (Tensor data::Batch::*part : kParts)
        if ((from.*part).defined())
          all.push_back({.to = (inputs[k].*part).view(), .from = (from.*part).view()});
    }
    return all;
  }

  static constexpr std::array kParts{&data::Batch::images, &data::Batch::labels, &data::Batch::ids,
                                     &data::Batch::partner_labels, &data::Batch::partner_ids};
};

TrainStep::TrainStep(const TrainContext& context, DataParallel& parallel, optim::LossScaler* scaler,
                     data::DataLoader& loader, std::int64_t rates, StepProfile* profile)
    : context_(context),
      parallel_(parallel),
      scaler_(scaler),
      loader_(loader),
      profile_(profile),
      precision_(parse_precision(context.options.precision)),
      captures_(use_cuda_graph(context.options.compute, context.device)),
      epoch_(Tensor::empty({1}, DType::i32, context.device)),
      class_weights_(
          class_weights(context.options.class_weights, context.data, context.device, precision_.parameters)),
      rates_(Tensor::empty({rates}, DType::f64, context.device)),
      mixing_(Tensor::empty({kernels::kMixingNumbers}, DType::f32, context.device)),
      seed_(scaler != nullptr ? scaler->seed() : Tensor::full({1}, 1, precision_.parameters, context.device)),
      backward_done_(Event::timed(context.device.stream())),
      summed_(Event::timed(context.device.stream())),
      end_(Event::timed(context.device.stream())) {
  check(!captures_ || CudaGraph::supported(context.device), "CUDA graphs: found {}, expected a GPU",
        context.device.name());
}

TrainStep::~TrainStep() = default;

void TrainStep::discard_captures() { captured_steps_.clear(); }

const std::vector<MicroBatchResult>& TrainStep::run(const std::vector<data::Batch>& batches,
                                                    const std::vector<double>& rates, std::int64_t step) {
  check(std::ssize(rates) == rates_.numel(), "step: found {} learning rates, expected {}", rates.size(),
        rates_.numel());
  micro_batches_ = batches.size();
  while (times_phases_ && marks_.size() < micro_batches_)
    marks_.push_back(std::make_unique<Marks>(context_.device));
  while (context_.options.init_from.empty() && norm_batches_.size() < micro_batches_)
    norm_batches_.push_back(Tensor::empty({1}, DType::f64, context_.device));

  if (const CapturedStep* captured = captured_step(batches)) {
    dist::enter(context_.observer, dist::Phase::replay);
    set_inputs(batches.front(), rates, step, captured->copies(batches));
    captured->graph->replay();
    parallel_.reducer().end_step();
    return captured->results;
  }
  // The first step uses heuristic algorithms, so that training starts quickly. The second step autotunes.
  set_inputs(batches.front(), rates, step);
  context_.device.set_autotune(eager_steps_ > 0);
  CachingAllocator& memory = context_.device.memory();
  const std::size_t before = memory.stats().in_use;
  ++eager_steps_;
  results_.clear();
  compute(batches, results_);
  parallel_.reducer().end_step();
  if (eager_steps_ == 1) step_bytes_ = memory.stats().peak_in_use - before;
  if (eager_steps_ == 2 && context_.is_gpu()) {  // gives back what only the autotuning has used
    memory.trim();
    memory.reset_peak();
  }
  return results_;
}

void TrainStep::set_inputs(const data::Batch& batch, const std::vector<double>& rates, std::int64_t step,
                           std::vector<kernels::Assignment> copies) {
  copies.push_back({.to = epoch_.view(), .value = static_cast<double>(batch.epoch)});
  if (batch.partner_labels.defined())
    for (std::int64_t i = 0; const double number : batch.mixing.numbers()) {
      copies.push_back({.to = mixing_.rows(i, i + 1).view(), .value = number});
      ++i;
    }
  for (std::int64_t i = 0; i < std::ssize(rates); ++i)
    copies.push_back({.to = rates_.rows(i, i + 1).view(), .value = rates[static_cast<std::size_t>(i)]});
  for (std::size_t k = 0; k < std::min(micro_batches_, norm_batches_.size()); ++k)
    copies.push_back({.to = norm_batches_[k].view(),
                      .value = static_cast<double>(step) * static_cast<double>(micro_batches_) +
                               static_cast<double>(k + 1)});
  on(rates_.stream(), [&](auto& s) { kernels::assign(s, copies); });
}

void TrainStep::compute(const std::vector<data::Batch>& batches, std::vector<MicroBatchResult>& results) {
  // At the end of an epoch a rank may have no samples, or fewer samples than micro-batches.
  // Other ranks' synchronized batch norms wait for a rank without samples.
  const auto runs = [&](const data::Batch& batch) {
    return context_.statistics != nullptr || batch.labels.size(0) > 0;
  };
  const auto count = static_cast<std::size_t>(std::ranges::count_if(batches, runs));
  dist::GradientReducer& gradients = parallel_.reducer();
  const auto mark = [&](std::size_t k, Event Marks::*event) {
    if (times_phases_) ((*marks_[k]).*event).record();
  };
  gradients.begin_forward(batches.size());
  for (std::size_t k = 0, computed = 0; k < batches.size(); ++k) {
    mark(k, &Marks::begin);
    Variable loss;
    Tensor correct_count;
    if (runs(batches[k]))
      std::tie(loss, correct_count) =
          loss_of(batches[k], norm_batches_.empty() ? Tensor() : norm_batches_[k]);
    mark(k, &Marks::forward);
    if (loss.defined()) {
      dist::enter(context_.observer, dist::Phase::backward);
      const Profiler::Range range(context_.profiler, "backward");
      gradients.begin_step(computed + 1 == count);
      backward(loss, {.accumulate = gradients.accumulates() && computed > 0, .seed = seed_});
      ++computed;
    }
    gradients.end_micro_batch();
    mark(k, &Marks::backward);
    results.push_back(result_of(loss, correct_count, batches[k].global_count));
  }
  if (context_.is_distributed()) {
    dist::enter(context_.observer, dist::Phase::gradients);
    const Profiler::Range range(context_.profiler, "wait for gradients", "communication");
    backward_done_.record();
    gradients.finish();
    summed_.record();
    if (profile_ != nullptr) profile_->stage_done("wait for gradients");
  }
  dist::enter(context_.observer, dist::Phase::optimizer);
  const Profiler::Range range(context_.profiler, "optimizer");
  const double clip_norm = context_.options.clip_norm;
  parallel_.optimizer().step(rates_, {.clip_norm = clip_norm > 0 ? std::optional(clip_norm) : std::nullopt,
                                      .scaler = scaler_,
                                      .process_group = parallel_.shard_group()});
  if (profile_ != nullptr) profile_->stage_done("optimizer");
  if (times_phases_) end_.record();
}

std::pair<Variable, Tensor> TrainStep::loss_of(const data::Batch& batch, const Tensor& norm_batch) {
  dist::enter(context_.observer, dist::Phase::forward);
  const Profiler::Range range(context_.profiler, "forward");
  const Tensor images = images_of(batch);
  const nn::ForwardContext context{.training = true,
                                   .seed = static_cast<std::uint64_t>(context_.options.seed),
                                   .sample_ids = batch.ids,
                                   .device_epoch = epoch_,
                                   .norm_batch = norm_batch};
  CrossEntropyOptions options{.smoothing = *context_.options.label_smoothing,
                              .class_weights = class_weights_};
  if (!sums_losses()) options.scale = 1 / static_cast<double>(batch.global_count);
  const Variable logits = context_.model(images, context);
  const CrossEntropy own = cross_entropy(logits, batch.labels, options);
  return {mixed_loss(own.loss, logits, batch, options), own.correct_count};
}

Variable TrainStep::mixed_loss(const Variable& own, const Variable& logits, const data::Batch& batch,
                               const CrossEntropyOptions& options) const {
  if (!batch.partner_labels.defined()) return own;
  const Variable weight(mixing_.rows(kernels::kMixingNumbers - 1, kernels::kMixingNumbers).to(own.dtype()));
  return weight * own + (1 - weight) * cross_entropy(logits, batch.partner_labels, options).loss;
}

MicroBatchResult TrainStep::result_of(const Variable& loss, const Tensor& correct_count,
                                      std::int64_t global_count) const {
  const NoGrad no_grad;
  const auto zero = [&] { return Tensor::zeros({1}, precision_.parameters, context_.device); };
  MicroBatchResult result;
  if (!loss.defined())
    result.loss = zero();
  else if (sums_losses())
    result.loss = (loss * (1 / static_cast<double>(global_count))).value();
  else
    result.loss = loss.value();
  if (!context_.options.augmentation.mixes_labels()) result.correct = loss.defined() ? correct_count : zero();
  return result;
}

Tensor TrainStep::images_of(const data::Batch& batch) {
  if (batch.images.defined()) return batch.images;
  const auto made = [&](const Tensor& ids) {
    const Shape& image = context_.model.input();
    const Tensor images =
        Tensor::empty({ids.size(0), image[0], image[1], image[2]}, precision_.compute, context_.device);
    loader_.make_images(ids, epoch_, images);
    return images;
  };
  const Tensor images = made(batch.ids);
  if (batch.partner_ids.defined()) {
    const Tensor partners = made(batch.partner_ids);
    on(images.stream(),
       [&](auto& s) { kernels::mix_images(s, partners.view(), mixing_.view(), images.view()); });
  }
  if (profile_ != nullptr) profile_->stage_done("augmentation");
  return images;
}

double TrainStep::evaluate(const data::Batch& batch) {
  const NoGrad no_grad;
  set_inputs(batch, {}, /*step=*/0);
  const Tensor images = images_of(batch);
  const Variable logits = context_.model(images);
  const Variable own = cross_entropy(logits, batch.labels, {}).loss;
  const double sum = mixed_loss(own, logits, batch, {}).value().item();
  return sum / static_cast<double>(images.size(0));
}

const TrainStep::CapturedStep* TrainStep::captured_step(const std::vector<data::Batch>& batches) {
  if (!captures_ || (profile_ != nullptr && profile_->active())) return nullptr;
  // Without samples, the host waits to learn which parameters have a gradient on other ranks.
  if (batches.front().smallest == 0) return nullptr;
  const auto [place, is_new] = captured_steps_.try_emplace(batches.front().global_count);
  if (is_new) place->second = std::make_unique<CapturedStep>();
  // A capture needs an earlier eager step of this shape, whose algorithms are final.
  if (is_new || eager_steps_ < 2 || !parallel_.reducer().bucket_plan_final()) return nullptr;
  if (!place->second->graph && !capture(*place->second, batches)) return nullptr;
  return place->second.get();
}

bool TrainStep::capture(CapturedStep& step, const std::vector<data::Batch>& batches) {
  for (const data::Batch& batch : batches) {
    data::Batch& input = step.inputs.emplace_back(batch);
    for (Tensor data::Batch::*part : CapturedStep::kParts)
      if ((input.*part).defined()) input.*part = Tensor::empty_like(input.*part);
  }
  // Makes one free range for the first graph, so that its arrays share memory, of whatever size they are. Blocks of size
  // classes need as much again at most.
  CachingAllocator& memory = context_.device.memory();
  if (const std::size_t bytes = std::exchange(step_bytes_, 0); bytes > 0 && 2 * bytes <= memory.available()) {
    memory.trim();
    memory.release(memory.allocate(bytes), bytes);
    memory.reset_peak();
  }
  std::string failure;
  try {
    step.graph = std::make_unique<CudaGraph>(context_.device, [&] { compute(step.inputs, step.results); });
  } catch (const DeviceError& error) {
    failure = error.what();
  }
  failure = failure_of_any_rank(failure);
  if (failure.empty()) return true;
  // Captured work has not run, so this step can still run eagerly. If the GPU itself fails, the eager step
  // reports it.
  parallel_.reducer().abandon_step();
  captured_steps_.clear();
  captures_ = false;
  warning_ = fmt::format("steps run op by op because they cannot be captured as a CUDA graph: {}", failure);
  return false;
}

std::string TrainStep::failure_of_any_rank(const std::string& failure) const {
  if (!context_.is_distributed()) return failure;
  std::string first;
  const std::vector<std::string> failures =
      context_.control->gather_object(failure);  // empty except on rank 0
  for (std::size_t rank = failures.size(); rank-- > 0;)
    if (!failures[rank].empty()) first = fmt::format("rank {}: {}", rank, failures[rank]);
  return dist::broadcast_text(*context_.control, first);
}

std::optional<std::string> TrainStep::take_warning() { return std::exchange(warning_, std::nullopt); }

TrainStep::Phases TrainStep::phases() const {
  Phases phases;
  for (std::size_t k = 0; k < micro_batches_; ++k) {
    phases.forward += elapsed_ms(marks_[k]->begin, marks_[k]->forward);
    phases.backward += elapsed_ms(marks_[k]->forward, marks_[k]->backward);
  }
  if (micro_batches_ == 0) return phases;
  if (context_.is_distributed()) phases.communication = communication_ms();
  phases.optimizer =
      elapsed_ms(context_.is_distributed() ? summed_ : marks_[micro_batches_ - 1]->backward, end_);
  return phases;
}

double TrainStep::communication_ms() const { return elapsed_ms(backward_done_, summed_); }

}  // namespace convoy
