// ModelCheckpoint: decides when checkpoints are due, and saves them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "convoy/engine/io/checkpoint.h"
#include "convoy/engine/training/early_stopping.h"

namespace convoy::training {

/// Options of ModelCheckpoint.
struct ModelCheckpointOptions {
  std::int64_t every_steps = 0;      // steps between checkpoints; 0: one after each epoch
  bool keep_best = true;             // also one after the best evaluation, which BEST names
  Metric metric = Metric::accuracy;  // of the best evaluation
  std::string model_name;            // io::Manifest::model
};

/// Saves checkpoints in regular intervals, and after each evaluation that is the best so far. With an
/// evaluation after each epoch, the checkpoint of the best epoch is written twice: the second one is named by
/// BEST.
class ModelCheckpoint final : public Callback {
 public:
  /// A function that saves the checkpoint of a step. `is_best`: BEST should name it.
  using Save = std::function<void(std::int64_t step, bool is_best)>;
  /// A place in a training at which a checkpoint may be due.
  struct Position {
    std::int64_t step = 0;       // number of completed steps
    bool ends_epoch = false;     // whether the step is the last one of its epoch
    bool ends_training = false;  // whether it is the last one of all
  };

  /// Saves the model and the optimizer to `directory`, whose settings say how many checkpoints it keeps. The
  /// references must outlive this object.
  ModelCheckpoint(io::CheckpointDirectory& directory, const nn::Module& model,
                  const optim::Optimizer& optimizer, ModelCheckpointOptions options = {});
  /// Calls `save` instead.
  ModelCheckpoint(Save save, ModelCheckpointOptions options);

  void on_step(const StepResult& result) override;
  void on_epoch(const EpochResult& result) override;
  void on_evaluation(const EvaluationResult& result) override;

  /// Learns that the latest evaluation is the best one, or not: whether the next checkpoint is the best. For
  /// callers that compare evaluations themselves, and call save() instead of the functions above.
  void set_best(bool is_best) { best_unsaved_ = is_best && options_.keep_best; }
  /// Returns whether a checkpoint is due: after the best evaluation, at the end, and in regular intervals, if
  /// there is none of this step.
  bool is_due(const Position& position) const;
  /// Saves the checkpoint of a step. Throws what the saving throws: OutputError.
  void save(std::int64_t step);

  /// Returns the step of the latest checkpoint; -1: none.
  std::int64_t saved_step() const { return saved_step_; }
  /// Continues after a checkpoint; -1: none.
  void restore(std::int64_t saved_step) { saved_step_ = saved_step; }
  /// Forgets the latest checkpoint, which was given up.
  void withdraw() { saved_step_ = previous_saved_step_; }

 private:
  Save save_;
  ModelCheckpointOptions options_;
  EarlyStopping best_;
  bool best_unsaved_ = false;  // the latest evaluation was the best, and no checkpoint contains it yet
  std::int64_t saved_step_ = -1, previous_saved_step_ = -1;
};

}  // namespace convoy::training
