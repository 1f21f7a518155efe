// TrainerParts: the objects that the classes of a training share.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "convoy/comm/core/communicator.h"
#include "convoy/comm/core/rank_observer.h"
#include "convoy/datasets/dataset.h"
#include "convoy/datasets/transforms/transforms.h"
#include "convoy/engine/io/checkpoint.h"
#include "convoy/engine/profile/profiler.h"
#include "convoy/models/model.h"

namespace convoy {

/// The objects that a trainer uses. All must outlive the trainer.
struct TrainerParts {
  const models::Model& model;
  const DeviceContext& device;
  const data::DataSet& data;
  data::TransformSpec transform;
  io::CheckpointDirectory& checkpoints;
  /// Additional entries of every manifest.
  std::map<std::string, std::string> extra;
  Profiler* profiler = nullptr;
  /// Returns a signal number to stop after the current step and a checkpoint, or 0.
  std::function<int()> stop_signal;

  /// The communicator for gradients. Null with one rank. With several ranks, each has a trainer with the same
  /// data, options and model.
  dist::Communicator* gradients = nullptr;
  /// The communicator for small messages in host memory: `gradients` on the CPU. Null with one rank.
  dist::Communicator* control = nullptr;
  /// The communicator for batch norm statistics with --sync-bn and several ranks, else null. On the CPU it
  /// carries nothing else.
  dist::Communicator* statistics = nullptr;
  /// Learns the phases of this rank, and makes all ranks stop after the same step. May be null with one rank.
  dist::RankObserver* plane = nullptr;

  /// Whether another trainer may continue this training on fewer ranks (Trainer::abandon()).
  bool may_regroup = false;

  int rank() const { return control != nullptr ? control->rank() : 0; }
  int world_size() const { return control != nullptr ? control->size() : 1; }
  bool is_traced() const { return profiler != nullptr && profiler->enabled(); }
};

}  // namespace convoy
