#include "convoy/engine/training/model_checkpoint.h"

#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::training {

ModelCheckpoint::ModelCheckpoint(io::CheckpointDirectory& directory, const nn::Module& model,
                                 const optim::Optimizer& optimizer, ModelCheckpointOptions options)
    : ModelCheckpoint(
          [&directory, &model, &optimizer, name = options.model_name](std::int64_t step, bool is_best) {
            io::Manifest manifest;
            manifest.step = step;
            manifest.model = name;
            directory.save(model, optimizer, manifest, is_best);
          },
          options) {}

ModelCheckpoint::ModelCheckpoint(Save save, ModelCheckpointOptions options)
    : save_(std::move(save)), options_(std::move(options)), best_({.metric = options_.metric}) {
  check(options_.every_steps >= 0, "checkpoints: found an interval of {} steps, expected at least 0",
        options_.every_steps);
}

void ModelCheckpoint::on_step(const StepResult& result) {
  if (options_.every_steps > 0 && is_due({.step = result.step})) save(result.step);
}

void ModelCheckpoint::on_epoch(const EpochResult& result) {
  if (is_due({.step = result.step, .ends_epoch = true})) save(result.step);
}

void ModelCheckpoint::on_evaluation(const EvaluationResult& result) {
  best_.on_evaluation(result);
  set_best(best_.is_best());
  if (best_unsaved_) save(result.step);
}

bool ModelCheckpoint::is_due(const Position& position) const {
  if (best_unsaved_) return true;
  if (saved_step_ == position.step) return false;
  if (position.ends_training) return true;
  if (position.step == 0) return false;
  return options_.every_steps > 0 ? position.step % options_.every_steps == 0 : position.ends_epoch;
}

void ModelCheckpoint::save(std::int64_t step) {
  save_(step, best_unsaved_);
  previous_saved_step_ = std::exchange(saved_step_, step);
  best_unsaved_ = false;
}

}  // namespace convoy::training
