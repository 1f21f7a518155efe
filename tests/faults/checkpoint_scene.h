// What the checkpoint fault tests share: a training whose step can be read from its parameters, a folder of
// checkpoints, and the question whether that folder still serves.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/io/checkpoint.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_training.h"

namespace convoy::testing {

class CheckpointScene {
 public:
  explicit CheckpointScene(std::filesystem::path root) : checkpoints_(std::move(root)) {
    checkpoints_.set_keep_last(1);  // so that every save also prunes
  }

  const std::filesystem::path& root() const { return checkpoints_.root(); }
  CheckpointFolder& checkpoints() { return checkpoints_; }

  /// A checkpoint of `step` whose parameters and state say `mark`. Uses no threads, so a forked child may
  /// call it.
  void save(std::int64_t step, float mark) {
    for (const NamedParameter& parameter : training_.net->parameters())
      write_mark(parameter.variable.value(), mark);
    for (const NamedState& state : training_.optimizer->state()) write_mark(state.tensor, mark);
    training_.optimizer->set_steps(static_cast<std::int64_t>(mark));
    Manifest manifest;
    manifest.step = step;
    checkpoints_.save(*training_.net, *training_.optimizer, manifest, true);
  }

  /// Loads the latest checkpoint into a fresh training. Returns its mark; -1 where there is none that loads,
  /// -2 where parameters, state and manifest are not of one save.
  float loaded_mark() const {
    const auto latest = checkpoints_.latest();
    if (!latest) return -1;
    TinyTraining fresh;
    try {
      load_checkpoint(*latest, *fresh.net, fresh.optimizer.get());
    } catch (const Error&) {
      return -1;
    }
    const float mark = first_of(fresh.net->parameters()[0].variable.value());
    bool equal = fresh.optimizer->steps() == static_cast<std::int64_t>(mark);
    for (const NamedParameter& parameter : fresh.net->parameters())
      equal = equal && first_of(parameter.variable.value()) == mark;
    for (const NamedState& state : fresh.optimizer->state()) equal = equal && first_of(state.tensor) == mark;
    return equal ? mark : -2;
  }

  /// Whether every folder that has a step's name verifies: nothing half made or half removed bears one.
  bool all_whole() const {
    try {
      for (const auto& entry : std::filesystem::directory_iterator(root()))
        if (entry.path().filename().string().starts_with("step_")) read_manifest(entry.path());
    } catch (const CheckpointError&) {
      return false;
    }
    return true;
  }

  /// Temporary files and folders in the checkpoint folder.
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

  CheckpointFolder checkpoints_;
  TinyTraining training_;
};

}  // namespace convoy::testing
