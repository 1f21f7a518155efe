// DataParallel: what the ranks exchange: gradients, parameters, state, signals.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convoy/apps/train/train_context.h"
#include "convoy/comm/parallel/broadcast.h"
#include "convoy/comm/parallel/gradient_reducer.h"
#include "convoy/comm/parallel/zero/sharded_optimizer.h"
#include "convoy/comm/parallel/zero/sharded_parameters.h"
#include "convoy/engine/io/checkpoint.h"
#include "convoy/engine/optim/optimizer.h"

namespace convoy {

/// Data parallelism of one training: each rank has a replica of the model and steps all of its parameters
/// or, with --zero, a shard of them. All ranks call the same functions in the same order. With one rank,
/// nothing is exchanged.
class DataParallel {
 public:
  /// Sets up synchronized batch norm and makes the optimizer. Collective. Throws UsageError if --sync-bn and
  /// the communicators contradict each other. `context` must outlive this object.
  explicit DataParallel(const TrainContext& context);

  /// Returns this rank's optimizer: of its shard with --zero, else of all parameters.
  optim::Optimizer& optimizer() { return *optimizer_; }
  /// Returns this rank's shard of the optimizer; null without --zero.
  dist::ShardedOptimizer* sharded() const { return sharded_.get(); }
  /// Returns the process group of the sharded optimizer; null without --zero.
  ProcessGroup* shard_group() { return shard_group_.get(); }
  /// Makes the gradient reducer, before the first step. Does nothing if there is one already.
  void connect();
  /// Replaces the gradient reducer by one of the parameters that require a gradient now, between two steps.
  /// Not supported with --zero. Collective.
  void reconnect();
  /// Returns the gradient reducer: one that sums nothing with one rank and before connect().
  dist::GradientReducer& reducer() const { return *reducer_; }

  /// Loads the model, the optimizer, the bucket plan and other weights, if there are any, from a checkpoint.
  /// Only rank 0 calls this; broadcast() must follow.
  void load(const io::Checkpoint& checkpoint, const std::vector<optim::NamedState>& other_weights);
  /// Copies parameters, buffers, other weights, optimizer state, bucket plan and algorithm cache of rank 0 to
  /// all ranks. Collective.
  void broadcast(const std::vector<optim::NamedState>& other_weights);
  /// Returns rank 0's `local` on every rank. Collective.
  std::vector<std::string> from_rank_zero(const std::vector<std::string>& local) const;
  /// Returns the model with the optimizer's state: with --zero this rank's shard, else all of it. Shares the
  /// tensors of both.
  io::Snapshot snapshot() const;
  /// Stores the bucket plan in the manifest, if the plan is final and not implied by the model.
  void write_plan(io::Manifest& manifest) const;

  /// Throws the error of a collective of gradients that has failed. Does not block. The host launches replays of
  /// a captured step without waiting for them, so no other call would notice.
  void check_errors() const;
  /// Makes all parameters complete on this rank. Collective.
  void gather_parameters() { reducer_->gather_parameters(); }
  /// Sets the running statistics on every rank to those that evaluations and checkpoints use. Training
  /// continues from them, as a resumed run does. `train_images` is the size of the training set. Collective.
  void combine_running_statistics(std::int64_t train_images) const;
  /// Returns the signal with which all ranks stop now, or 0. All ranks call it at the same points, and get
  /// the same result. Waits for other ranks only once a rank has received a signal.
  int agree_on_stop() const;
  /// Compares the summed gradients of step `step` between ranks: on GPUs, whose sums have no checksums of
  /// their own. Compares those of the first step of this training and of every kSumsPeriod-th, or all of them
  /// with
  /// --debug-comm. Throws CorruptionError if they differ. Collective; only a comparison waits for the GPU.
  void verify_sums(std::int64_t step);
  static constexpr std::int64_t kSumsPeriod = 100;  // steps
  /// Throws PeerError if the parameters after step `step` differ between ranks. Collective.
  void check_replicas(std::int64_t step);

  /// Returns the parameters whose gradients this rank has: those of its shard with --zero, else all.
  std::vector<nn::NamedParameter> local_parameters() const;
  /// Returns the size of this rank's optimizer state.
  std::size_t optimizer_bytes() const;
  /// Returns the maximum memory that gradients have used on this rank.
  std::size_t gradient_bytes() const;

 private:
  void set_up_sync_batch_norm();
  void restore_shards();
  std::optional<std::string> plan_to_store() const;

  const TrainContext& context_;
  std::unique_ptr<optim::Optimizer> optimizer_;

  // The next four are null without --zero.
  std::unique_ptr<dist::ShardedParameters> shards_;
  std::unique_ptr<dist::ShardedOptimizer> sharded_;  // views optimizer_ as one shard of the whole optimizer
  std::unique_ptr<dist::CommunicatorGroup> shard_group_;
  /// The state in a checkpoint, on rank 0 between load() and broadcast().
  std::optional<io::SavedOptimizer> saved_;

  bool sums_verified_ = false;  // at least once
  bool is_connected_ = false;   // with several ranks, after connect()
  std::unique_ptr<dist::GradientReducer> reducer_;
  std::string bucket_plan_;  // from the checkpoint; empty: none
};

}  // namespace convoy
