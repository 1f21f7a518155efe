#include "apps/train_step.h"

#include <algorithm>

#include "engine/autograd/backward.h"
#include "engine/ops/ops.h"
#include "kernels/elementwise.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

void fill_number(const Tensor& cell, double value) {
  on(cell.stream(), [&](auto& s) { fill(s, value, cell.view()); });
}

}  // namespace

/// The graph of an update and the memory through which its batches enter. Losses lie in the graph's own pool.
struct TrainStep::Recording {
  std::unique_ptr<WorkGraph> graph;  // null until there has been an update op by op
  std::vector<Input> inputs;
  std::vector<Tensor> losses;

  void load(const std::vector<Batch>& batches) const {
    for (std::size_t k = 0; k < batches.size(); ++k) {
      if (inputs[k].images.defined()) inputs[k].images.copy_from(batches[k].images);
      inputs[k].labels.copy_from(batches[k].labels);
      inputs[k].ids.copy_from(batches[k].ids);
    }
  }
};

TrainStep::TrainStep(const Model& model, Optimizer& optimizer, LossScaler* scaler, DataLoader& loader,
                     Device device, TrainStepSettings settings)
    : model_(model),
      optimizer_(optimizer),
      scaler_(scaler),
      loader_(loader),
      device_(std::move(device)),
      settings_(settings),
      epoch_(Tensor::empty({1}, DType::i32, device_)),
      lr_(Tensor::empty({1}, DType::f64, device_)),
      summed_(device_),
      end_(device_) {
  check(!settings_.record || WorkGraph::supported(device_), "work graphs: found {}, expected a GPU",
        device_.name());
}

TrainStep::~TrainStep() = default;

const std::vector<Tensor>& TrainStep::run(const std::vector<Batch>& batches, double lr) {
  set_numbers(batches.front().epoch, lr);
  micro_batches_ = batches.size();
  while (marks_.size() < micro_batches_) marks_.push_back(std::make_unique<Marks>(device_));

  if (const Recording* recording = recording_of(batches)) {
    recording->load(batches);
    recording->graph->replay();
    if (gradients_ != nullptr) gradients_->end_update();
    return recording->losses;
  }
  // The first update is computed by first guesses, to be there soon; the second times the alternatives.
  device_.set_may_time(eager_updates_ > 0);
  ++eager_updates_;
  std::vector<Input> inputs;
  for (const Batch& batch : batches) inputs.push_back({batch.images, batch.labels, batch.ids});
  losses_.clear();
  compute(inputs, batches.front().global_count, losses_);
  if (gradients_ != nullptr) gradients_->end_update();
  return losses_;
}

TrainStep::Signature TrainStep::signature_of(const std::vector<Batch>& batches) {
  Signature signature = {batches.front().global_count};
  for (const Batch& batch : batches) signature.push_back(batch.labels.size(0));
  return signature;
}

void TrainStep::set_numbers(std::int64_t epoch, double lr) {
  if (epoch != epoch_is_) fill_number(epoch_, static_cast<double>(epoch));
  epoch_is_ = epoch;
  fill_number(lr_, lr);
}

void TrainStep::compute(const std::vector<Input>& inputs, std::int64_t global_count,
                        std::vector<Tensor>& losses) {
  // A rank's share of the last samples of an epoch may be empty, or less than its number of micro-batches.
  const auto is_computed = [&](const Input& input) {
    return settings_.computes_empty || input.labels.size(0) > 0;
  };
  const auto most = static_cast<std::size_t>(std::count_if(inputs.begin(), inputs.end(), is_computed));
  const bool accumulates = gradients_ == nullptr || gradients_->accumulates();
  if (gradients_ != nullptr) gradients_->begin_forward();
  for (std::size_t k = 0, computed = 0; k < inputs.size(); ++k) {
    Marks& marks = *marks_[k];
    marks.begin.record();
    Variable loss;
    if (is_computed(inputs[k])) loss = loss_of(inputs[k], global_count);
    marks.forward.record();
    if (loss.defined()) {
      const Profiler::Range range(settings_.profiler, "backward");
      if (gradients_ != nullptr) gradients_->begin_update(computed + 1 == most);
      backward(loss, {.accumulate = accumulates && computed > 0,
                      .seed = scaler_ != nullptr ? scaler_->seed() : Tensor()});
      ++computed;
    }
    if (gradients_ != nullptr) gradients_->end_micro_batch();
    marks.backward.record();
    losses.push_back(loss.defined() ? loss.value() : Tensor::zeros({1}, settings_.loss_dtype, device_));
  }
  if (gradients_ != nullptr) {
    const Profiler::Range range(settings_.profiler, "wait for gradients", "communication");
    gradients_->finish();
  }
  summed_.record();
  const Profiler::Range range(settings_.profiler, "optimizer");
  optimizer_.step(lr_, {.clip_norm = settings_.clip_norm, .scaler = scaler_, .others = others_});
  end_.record();
}

Variable TrainStep::loss_of(const Input& input, std::int64_t global_count) {
  const Profiler::Range range(settings_.profiler, "forward");
  const Shape& image = model_.input();
  Tensor images = input.images;
  if (!images.defined()) {
    images = Tensor::empty({input.ids.size(0), image[0], image[1], image[2]}, settings_.dtype, device_);
    loader_.make_images(input.ids, epoch_, images);
  }
  const Pass pass{.training = true, .seed = settings_.seed, .sample_ids = input.ids, .epoch_cell = epoch_};
  return cross_entropy_sum(model_(images, pass), input.labels, settings_.label_smoothing) /
         static_cast<double>(global_count);
}

const TrainStep::Recording* TrainStep::recording_of(const std::vector<Batch>& batches) {
  if (!settings_.record) return nullptr;
  // With an empty share the host waits, to learn which parameters have a gradient on other ranks.
  const auto is_empty = [](const Batch& batch) { return batch.labels.size(0) == 0; };
  if (std::any_of(batches.begin(), batches.end(), is_empty)) return nullptr;
  const auto [place, is_new] = recordings_.try_emplace(signature_of(batches));
  if (is_new) place->second = std::make_unique<Recording>();
  // Recording needs an update of this shape that ran op by op, with its algorithms chosen.
  if (is_new || eager_updates_ < 2 || (gradients_ != nullptr && !gradients_->settled())) return nullptr;
  if (!place->second->graph && !record(*place->second, batches)) return nullptr;
  return place->second.get();
}

bool TrainStep::record(Recording& recording, const std::vector<Batch>& batches) {
  for (const Batch& batch : batches)
    recording.inputs.push_back({batch.images.defined() ? Tensor::empty_like(batch.images) : Tensor(),
                                Tensor::empty_like(batch.labels), Tensor::empty_like(batch.ids)});
  try {
    recording.graph = std::make_unique<WorkGraph>(
        device_, [&] { compute(recording.inputs, batches.front().global_count, recording.losses); });
    return true;
  } catch (const DeviceError& error) {
    // What was recorded has not run, so this update can still be computed op by op; if the GPU itself is the
    // problem, that will say so.
    if (gradients_ != nullptr) gradients_->abandon_update();
    recordings_.clear();
    settings_.record = false;
    problem_ = fmt::format("updates are computed op by op, not as one CUDA graph: {}", error.what());
    return false;
  }
}

std::optional<std::string> TrainStep::take_problem() { return std::exchange(problem_, std::nullopt); }

TrainStep::Phases TrainStep::phases() const {
  Phases phases;
  for (std::size_t k = 0; k < micro_batches_; ++k) {
    phases.forward += elapsed_ms(marks_[k]->begin, marks_[k]->forward);
    phases.backward += elapsed_ms(marks_[k]->forward, marks_[k]->backward);
  }
  if (micro_batches_ == 0) return phases;
  phases.communication = elapsed_ms(marks_[micro_batches_ - 1]->backward, summed_);
  phases.update = elapsed_ms(summed_, end_);
  return phases;
}

}  // namespace convoy
