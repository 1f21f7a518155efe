// Fixture for the checkpoint fault tests: a training whose parameters encode the saved step, and a directory
// of checkpoints with checks of its integrity.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "convoy/engine/io/checkpoint.h"
#include "tests/testing/support/temp_directory.h"
#include "tests/testing/support/tiny_training.h"

namespace convoy::testing {

/// A checkpoint directory and a small training. Every value that save() writes is a mark that identifies the
/// save.
class CheckpointScene {
 public:
  explicit CheckpointScene(std::filesystem::path root) : checkpoints_(std::move(root)) {
    checkpoints_.set_keep_last(1);  // so that every save also removes a checkpoint
  }

  const std::filesystem::path& root() const { return checkpoints_.root(); }
  io::CheckpointDirectory& checkpoints() { return checkpoints_; }

  /// Saves a checkpoint of `step` whose parameters and state contain `mark`. Uses no threads, so a forked
  /// child may call it.
  void save(std::int64_t step, float mark) {
    for (const nn::NamedParameter& parameter : training_.net->parameters())
      write_mark(parameter.variable.value(), mark);
    for (const optim::NamedState& state : training_.optimizer->state()) write_mark(state.tensor, mark);
    training_.optimizer->set_steps(static_cast<std::int64_t>(mark));
    io::Manifest manifest;
    manifest.step = step;
    checkpoints_.save(*training_.net, *training_.optimizer, manifest, true);
  }

  /// Loads the latest checkpoint into a new training and returns its mark. Returns -1 if no checkpoint loads,
  /// -2 if parameters, state and manifest are from different saves.
  float loaded_mark() const {
    const auto latest = checkpoints_.latest();
    if (!latest) return -1;
    TinyTraining loaded;
    try {
      io::load_checkpoint(*latest, *loaded.net, loaded.optimizer.get());
    } catch (const Error&) {
      return -1;
    }
    const float mark = first_of(loaded.net->parameters()[0].variable.value());
    bool equal = loaded.optimizer->steps() == static_cast<std::int64_t>(mark);
    for (const nn::NamedParameter& parameter : loaded.net->parameters())
      equal = equal && first_of(parameter.variable.value()) == mark;
    for (const optim::NamedState& state : loaded.optimizer->state())
      equal = equal && first_of(state.tensor) == mark;
    return equal ? mark : -2;
  }

  /// Returns whether every directory with the name of a step verifies, so none is partly written or removed.
  bool all_verify() const {
    try {
      for (const auto& entry : std::filesystem::directory_iterator(root()))
        if (entry.path().filename().string().starts_with("step_")) io::read_manifest(entry.path());
    } catch (const CheckpointError&) {
      return false;
    }
    return true;
  }

  /// Returns the names of temporary files and directories in the checkpoint directory.
  std::vector<std::string> leftovers() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root()))
      if (const std::string name = entry.path().filename().string(); name.starts_with("."))
        names.push_back(name);
    return names;
  }

 private:
  static void write_mark(const Tensor& tensor, float mark) { *tensor.view().as<float>() = mark; }
  static float first_of(const Tensor& tensor) { return *tensor.view().as<float>(); }

  io::CheckpointDirectory checkpoints_;
  TinyTraining training_;
};

}  // namespace convoy::testing
