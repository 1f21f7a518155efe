// TrainContext: the objects that the classes of a training share.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "convoy/apps/train/options/options.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/core/rank_observer.h"
#include "convoy/datasets/dataset.h"
#include "convoy/datasets/transforms/transforms.h"
#include "convoy/engine/io/checkpoint.h"
#include "convoy/engine/profile/profiler.h"
#include "convoy/models/model.h"

namespace convoy {

class Trainer;

/// What lets a training continue with another trainer after a peer has failed. This class continues nothing;
/// apps/train/continuation has the one that does. It outlives the trainers.
class Continuation {
 public:
  virtual ~Continuation() = default;
  /// Keeps what it needs if the next step fails. The trainer calls it before each step. Collective.
  virtual void before_step(Trainer& /*trainer*/) {}
  /// Returns whether the training can continue after Trainer::run() has thrown PeerError. `trainer` is null if the ranks
  /// failed while they prepared one: then only a state that abandon() kept earlier can continue.
  virtual bool is_possible(const Trainer* /*trainer*/) const { return false; }
  /// Ends the training of the trainer, and keeps the state of its last complete step, or an earlier one.
  /// Returns that step.
  virtual std::int64_t abandon(Trainer& /*trainer*/) { return 0; }
  /// Sets the state that abandon() has kept in a new trainer of the same model, on other ranks, and keeps it until the
  /// first step. Throws PeerError if the ranks that remain do not have the whole state. Collective;
  /// Trainer::broadcast_state() must follow.
  virtual void adopt(Trainer& /*trainer*/) {}
};

/// The objects that a trainer and its parts use. All must outlive the trainer.
struct TrainContext {
  const TrainOptions& options;  // resolved (resolve_recipe())
  const models::Model& model;
  const DeviceContext& device;
  const data::DataSet& data;
  data::TransformSpec transform;
  io::CheckpointDirectory& checkpoints;
  /// Additional entries of every manifest.
  std::map<std::string, std::string> extra = {};
  Profiler* profiler = nullptr;
  /// Returns a signal number to stop after the current step and a checkpoint, or 0.
  std::function<int()> stop_signal = [] { return 0; };

  /// The communicator for gradients. Null with one rank. With several ranks, each has a trainer with the same
  /// data, options and model.
  dist::Communicator* gradients = nullptr;
  /// The communicator for small messages in host memory: `gradients` on the CPU. Null with one rank.
  dist::Communicator* control = nullptr;
  /// The groups of --zero, which hold all shards each. All null: the ranks are one group.
  HostGroups host_groups = {};
  /// The communicator for batch norm statistics with --sync-bn and several ranks, else null. On the CPU it
  /// carries nothing else.
  dist::Communicator* statistics = nullptr;
  /// Learns the phases of this rank, and makes all ranks stop after the same step. May be null with one rank.
  dist::RankObserver* observer = nullptr;
  /// Lets another trainer continue this training on fewer ranks. Null: none can.
  Continuation* continuation = nullptr;

  int rank() const { return control != nullptr ? control->rank() : 0; }
  int world_size() const { return control != nullptr ? control->size() : 1; }
  bool is_distributed() const { return world_size() > 1; }
  bool is_gpu() const { return device.kind() == DeviceKind::cuda; }
  bool is_traced() const { return profiler != nullptr && profiler->enabled(); }
};

}  // namespace convoy
