// Checkpoints: a folder with model.safetensors, optimizer.safetensors and manifest.json, written so that a
// kill at any moment leaves either the previous one or the new one, whole.
//
//   root/step_000123/…     complete from the moment that it has this name
//   root/LATEST, root/BEST one line, the name of a folder; replaced atomically
//   root/.tmp-*            a save or a removal under way, or killed; the next save removes it
//   root/.old-step_000123  the checkpoint that a second save of its step is about to replace; it counts as
//   one
//                          until that is done
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/io/file.h"
#include "engine/io/manifest.h"
#include "engine/io/state_dict.h"

namespace convoy {

/// OUT/checkpoints. One process writes to it at a time.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path root);

  /// Writes step_000123 through a temporary folder: files, fsync, rename, fsync of the parent, then LATEST
  /// (and BEST where `best`, unless the best is not kept). Then prunes. Transient write errors are retried;
  /// OutputError when they stay, with the temporary removed and everything older untouched.
  std::filesystem::path save(const Module& model, const OptimizerState& optimizer, const Manifest& manifest,
                             bool best);
  std::filesystem::path save(const Module& model, const Optimizer& optimizer, const Manifest& manifest,
                             bool best) {
    return save(model, state_of(optimizer), manifest, best);
  }
  /// How many of the newest stay; what LATEST and BEST name always does. 0: all.
  void set_keep_last(int count);
  /// false: save writes no BEST, so the best one goes when its turn comes.
  void set_keep_best(bool keep) { keep_best_ = keep; }

  /// What LATEST names, if it verifies; else the newest checkpoint that does; damaged ones are skipped with a
  /// line in `warnings`. None: nullopt.
  /// CheckpointError where the folder is there and cannot be read.
  std::optional<std::filesystem::path> latest(std::vector<std::string>* warnings = nullptr) const;
  /// What BEST names, if it verifies.
  std::optional<std::filesystem::path> best(std::vector<std::string>* warnings = nullptr) const;
  const std::filesystem::path& root() const { return root_; }

 private:
  void write_checkpoint(const std::filesystem::path& folder, const Module& model,
                        const OptimizerState& optimizer, const Manifest& manifest) const;
  void put_in_place(const std::filesystem::path& temporary, const std::string& name) const;
  std::optional<std::string> named_by(std::string_view pointer) const;
  /// Names of all checkpoints, newest first.
  std::vector<std::string> names() const;
  void prune() const;

  std::filesystem::path root_;
  int keep_last_ = 3;
  bool keep_best_ = true;
};

/// Into a model, and an optimizer where given. CheckpointError for another model, optimizer or a damaged
/// file; neither is touched then.
Manifest load_checkpoint(const std::filesystem::path& checkpoint, Module& model, Optimizer* optimizer);
/// The same into the tensors of a state, and its number of steps.
Manifest load_checkpoint(const std::filesystem::path& checkpoint, Module& model, OptimizerState& state);

}  // namespace convoy
