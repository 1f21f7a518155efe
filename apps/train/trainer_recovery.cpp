// Trainer: what a rank keeps, so that the training can continue after a peer has failed.
#include <utility>

#include "convoy/apps/train/trainer.h"
#include "convoy/kernels/base/check.h"

namespace convoy {

KeptTraining Trainer::abandon() {
  end_save_alone();
  KeptTraining kept{.points = {}, .saved_step = saved_step_};
  if (keeps_recovery_points()) {
    kept.points = std::move(recovery_points_);
    return kept;
  }
  const std::vector<nn::NamedBuffer> buffers = parts_.model.root().buffers();
  for (std::size_t i = 0; i < buffers_before_step_.size(); ++i)
    buffers[i].tensor.copy_from(buffers_before_step_[i]);
  RecoveryPoint& point = kept.points.emplace_back();
  point.state = state_;
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
  state_ = point->state;
  saved_step_ = parts_.checkpoints.contains(kept.saved_step) ? kept.saved_step : -1;
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
  point.state = state_;
  recovery_points_.insert(recovery_points_.begin(), std::move(point));
}

void Trainer::keep_buffers() {
  const std::vector<nn::NamedBuffer> buffers = parts_.model.root().buffers();
  buffers_before_step_.clear();
  for (const nn::NamedBuffer& buffer : buffers) buffers_before_step_.push_back(buffer.tensor.clone());
}

}  // namespace convoy
