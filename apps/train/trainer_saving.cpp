// Trainer: its checkpoints, and what a rank keeps so that the training can continue after a peer has failed.
#include <cmath>
#include <utility>

#include "convoy/apps/common/plan_cache.h"
#include "convoy/apps/train/trainer.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/reduce.h"

namespace convoy {

training::ModelCheckpoint::Position Trainer::position() const {
  return {.step = state_.step, .ends_epoch = state_.epoch_step == 0, .ends_training = finished()};
}

void Trainer::save(bool is_best) {
  const dist::PhaseScope phase(parts_.plane, dist::Phase::save);
  const Profiler::Range range(parts_.profiler, "save", "io");
  report(saver_.finish());  // one at a time
  synchronize();
  check_parameters();
  if (selection_) selection_->save(state_.step);
  combine_running_statistics();
  const optim::SwappedWeights swapped(evaluated_average());
  io::Snapshot state = parallel_.snapshot();
  state.other_weights = other_weights();
  if (parallel_.is_sharded() && !saver_.can_write_shards()) {
    state.shard = {};
    state.optimizer = parallel_.gather_optimizer();
  }
  saver_.start(state, make_manifest(), is_best);
}

void Trainer::end_save_alone() {
  if (saver_.shards_pending()) checkpoint_.withdraw();
  report(saver_.finish_alone());
}

void Trainer::report(const std::optional<SaveReport>& save) {
  if (save) call(&TrainerCallbacks::on_save, *save);
}

io::Manifest Trainer::make_manifest() const {
  io::Manifest manifest;
  if (parts_.rank() > 0) return manifest;
  manifest.model = parts_.model.name();
  manifest.extra = parts_.extra;
  if (std::string algorithms = format_algorithm_cache(parts_.device); !algorithms.empty())
    manifest.extra[kAlgorithmsKey] = std::move(algorithms);
  parallel_.write_plan(manifest);
  write_state(state(), manifest, parts_.data.validation.size() > 0 ? "validation" : "test");
  return manifest;
}

void Trainer::check_parameters() {
  const std::vector<nn::NamedParameter> parameters = parts_.model.parameters();
  std::vector<ConstView> views;
  for (const nn::NamedParameter& parameter : parameters) {
    parameter.variable.wait_ready();
    views.push_back(parameter.variable.value().view());
  }
  const Tensor norm = Tensor::empty({1}, DType::f64, parts_.device);
  on(parts_.device.stream(), [&](auto& s) { kernels::global_norm(s, views, norm.view()); });
  if (!std::isfinite(norm.item()))
    fail<NumericError>(
        "the parameters after step {} are not finite and are not saved; the last loss was {}; lower --lr "
        "(now {}) or set --clip-norm",
        state_.step, losses_.last(), *options_.lr);
}

KeptTraining Trainer::abandon() {
  end_save_alone();
  KeptTraining kept{.points = {}, .saved_step = checkpoint_.saved_step()};
  if (keeps_recovery_points()) {
    kept.points = std::move(recovery_points_);
    return kept;
  }
  const std::vector<nn::NamedBuffer> buffers = parts_.model.root().buffers();
  for (std::size_t i = 0; i < buffers_before_step_.size(); ++i)
    buffers[i].tensor.copy_from(buffers_before_step_[i]);
  RecoveryPoint& point = kept.points.emplace_back();
  point.state = state();
  point.snapshot.other_weights = other_weights();
  point.snapshot.optimizer = parallel_.snapshot().optimizer;  // the model is in place
  return kept;
}

void Trainer::adopt(const KeptTraining& kept) {
  const RecoveryPoint* point = &kept.points.front();
  if (const bool is_sharded = point->snapshot.shard.count > 1; is_sharded) {
    // A rank may have failed to take the newest one.
    const std::int64_t step = parallel_.minimum(point->state.step);
    if (point->state.step != step) point = &kept.points.back();
    if (point->state.step != step)
      fail<PeerError>("continuing from step {}: this rank has the states of steps {} and {} only", step,
                      kept.points.front().state.step, point->state.step);
    parallel_.restore({&point->snapshot.shard, &point->peer_shard});
  } else if (parts_.rank() == 0) {
    parallel_.restore(point->snapshot.optimizer);
  }
  if (!point->snapshot.model.empty()) point->snapshot.restore_model(parts_.model.root());
  const std::vector<optim::NamedState> others = other_weights();
  for (std::size_t i = 0; i < point->snapshot.other_weights.size(); ++i)
    others[i].tensor.copy_from(point->snapshot.other_weights[i].tensor);
  set_state(point->state);
  checkpoint_.restore(parts_.checkpoints.contains(kept.saved_step) ? kept.saved_step : -1);
}

/// Whether a step that fails may leave parameters that have been updated in part, or lose the only copy of a shard.
bool Trainer::keeps_recovery_points() const {
  return parts_.may_regroup && parts_.world_size() > 1 &&
         (parallel_.is_sharded() || parts_.device.kind() == DeviceKind::cuda);
}

/// Copies the state to host memory. If that fails on some ranks, these keep the previous point, as all others do.
void Trainer::take_recovery_point() {
  synchronize();
  RecoveryPoint point;
  if (recovery_points_.size() == 2) {
    point = std::move(recovery_points_.back());
    recovery_points_.pop_back();
  }
  io::Snapshot live = parallel_.snapshot();
  live.other_weights = other_weights();
  point.snapshot.copy_from(live);
  if (parallel_.is_sharded()) point.peer_shard = parallel_.shard_of_peer();
  point.state = state();
  recovery_points_.insert(recovery_points_.begin(), std::move(point));
}

void Trainer::keep_buffers() {
  const std::vector<nn::NamedBuffer> buffers = parts_.model.root().buffers();
  buffers_before_step_.clear();
  for (const nn::NamedBuffer& buffer : buffers) buffers_before_step_.push_back(buffer.tensor.clone());
}

}  // namespace convoy
