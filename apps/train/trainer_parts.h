// TrainerParts: the objects that the classes of a training share.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "comm/core/communicator.h"
#include "datasets/dataset.h"
#include "datasets/transforms/transforms.h"
#include "engine/io/checkpoint.h"
#include "engine/profile/profiler.h"
#include "models/model.h"

namespace convoy {

/// The objects that a trainer uses. All must outlive the trainer.
struct TrainerParts {
  const Model& model;
  const DeviceContext& device;
  const DataSet& data;
  TransformSpec transform;
  CheckpointDirectory& checkpoints;
  /// Additional entries of every manifest.
  std::map<std::string, std::string> extra;
  Profiler* profiler = nullptr;
  /// Returns a signal number to stop after the current step and a checkpoint, or 0.
  std::function<int()> stop_signal;

  /// The communicator for gradients. Null with one rank. With several ranks, each has a trainer with the same
  /// data, options and model.
  Communicator* gradients = nullptr;
  /// The communicator for small messages in host memory: `gradients` on the CPU. Null with one rank.
  Communicator* control = nullptr;
  /// The communicator for batch norm statistics with --sync-bn and several ranks, else null. On the CPU it
  /// carries nothing else.
  Communicator* statistics = nullptr;

  int rank() const { return control != nullptr ? control->rank() : 0; }
  int world_size() const { return control != nullptr ? control->size() : 1; }
  bool is_traced() const { return profiler != nullptr && profiler->enabled(); }
};

}  // namespace convoy
