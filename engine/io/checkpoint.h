// Crash-safe checkpoints: directories with model.safetensors, optimizer.safetensors and manifest.json. If the
// process is killed at any moment, either the previous checkpoint or the new one is complete. A training with
// an average of weights adds other_weights.safetensors. With ZeRO each rank writes its shard of the optimizer's
// state: optimizer-00001-of-00004.safetensors and so on.
//
//   root/step_000123/       a checkpoint; complete as soon as it has this name
//   root/LATEST, root/BEST  one line with the name of a checkpoint; replaced atomically
//   root/.tmp-*             a save or a removal in progress or interrupted; the next save removes it
//   root/.old-step_000123   the previous checkpoint of a step that is being saved again; valid until the new
//                           one is in place
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convoy/engine/io/file.h"
#include "convoy/engine/io/manifest.h"
#include "convoy/engine/io/safetensors.h"
#include "convoy/engine/io/state_dict.h"
#include "convoy/engine/optim/optimizer.h"

namespace convoy::io {

/// A checkpoint whose files have been verified.
struct Checkpoint {
  std::filesystem::path path;  // of its directory
  Manifest manifest;           // as read_manifest() returned it
};

/// The open files of an optimizer's state: kOptimizerFile with whole tensors, or one file per shard. A reader
/// gets whole tensors from either, and holds one of them at a time. One thread uses an object.
class SavedOptimizer {
 public:
  /// Opens the files and reads their headers. Throws CheckpointError if one is invalid, or if the shards do
  /// not contain each element of each tensor once.
  explicit SavedOptimizer(const Checkpoint& checkpoint);

  /// Returns OptimizerState::steps of the saved state.
  std::int64_t steps() const { return steps_; }
  /// Returns OptimizerState::own_steps of the saved state.
  const optim::StepsByName& own_steps() const { return own_steps_; }
  /// Throws CheckpointError unless the state is of the optimizer that `expected` names and has its tensors,
  /// of the same shapes. Uses no values of them; they may be on the meta device.
  void check_matches(const optim::OptimizerState& expected) const;
  /// Reads a tensor of the state that check_matches() has accepted, and returns it in host memory, with the
  /// shape and type of state.tensor. Throws CheckpointError if that fails.
  Tensor read(const optim::NamedState& state) const;

 private:
  /// Some elements of a tensor in a file.
  struct Piece {
    std::size_t file = 0;    // index in files_
    std::size_t index = 0;   // of the tensor in the file
    std::int64_t begin = 0;  // the first element, in the order of memory
    std::int64_t numel = 0;
  };
  /// A tensor of the state.
  struct Entry {
    Shape shape;  // in memory; of a file without shards: in the checkpoint
    DType dtype = DType::f32;
    nn::ParameterKind kind = nn::ParameterKind::weight;
    std::vector<Piece> pieces;
  };
  void add_shard(std::size_t file);
  void read_own_steps(std::size_t file);
  void check_cover(const std::string& name, Entry& entry) const;

  std::string source_;     // the checkpoint, for messages
  std::string optimizer_;  // its name
  std::int64_t steps_ = 0;
  optim::StepsByName own_steps_;
  int shards_ = 0;  // 0: whole tensors
  std::vector<SafetensorsReader> files_;
  std::map<std::string, Entry> entries_;
};

/// Returns the contents of the file of a shard. The tensors are the pieces, under the names of the whole
/// tensors; the metadata say where each belongs, and OptimizerShard::own_steps.
SafetensorsLayout lay_out_shard(const optim::OptimizerShard& shard);

/// The directory that holds the checkpoints of one run. Only one process may write to it at a time. Not
/// thread-safe.
class CheckpointDirectory {
 public:
  /// Names a directory, which save() creates if it does not exist.
  explicit CheckpointDirectory(std::filesystem::path root);

  /// Saves a checkpoint and returns its path. Writes a temporary directory (files, fsync), renames it and
  /// syncs the parent. Then replaces LATEST, and BEST if `best` is set and the best is kept, and removes old
  /// checkpoints. Blocks until the checkpoint is on disk. Retries transient write errors. If an error
  /// persists, removes the temporary directory, leaves older checkpoints untouched, and throws OutputError.
  /// Throws UsageError if manifest.step is negative.
  std::filesystem::path save(const Snapshot& snapshot, const Manifest& manifest, bool best);
  /// Does the same with a model and the state of an optimizer.
  std::filesystem::path save(const nn::Module& model, const optim::Optimizer& optimizer,
                             const Manifest& manifest, bool best);

  /// Begins a checkpoint whose shards are written by several processes: removes what earlier saves have left
  /// behind, and creates a temporary directory with a random name, whose path it returns. One process calls
  /// it, then all call write_shard(), then the first one calls commit(). Throws OutputError if that fails.
  std::filesystem::path begin(std::int64_t step);
  /// Writes a shard of an optimizer's state to a directory of begin(), and returns the size and checksum of
  /// the file. Blocks until it is on disk. Throws OutputError if that fails.
  static FileRecord write_shard(const std::filesystem::path& directory, const optim::OptimizerShard& shard);
  /// Completes a checkpoint as save() does, and returns its path. `shards` has the result of write_shard()
  /// for each shard, and the snapshot the model and any of the shards. Throws like save().
  std::filesystem::path commit(const std::filesystem::path& directory, const Snapshot& snapshot,
                               const Manifest& manifest, const std::vector<FileRecord>& shards, bool best);

  /// Sets how many of the newest checkpoints of the present training to keep, besides those that LATEST and
  /// BEST name; 0 keeps all. Throws UsageError if `count` is negative.
  void set_keep_last(int count);
  /// Sets whether save() writes BEST. If not, the best checkpoint is removed like any other.
  void set_keep_best(bool keep) { keep_best_ = keep; }

  /// Returns the checkpoint that LATEST names if it verifies, else the newest before it that does, else the
  /// newest of all that does; nullopt if there is none. Skips damaged checkpoints, and appends one line for
  /// each to `warnings`, and one if LATEST is invalid or names none. Throws CheckpointError if the directory
  /// exists but cannot be read.
  std::optional<Checkpoint> latest(std::vector<std::string>* warnings = nullptr) const;
  /// Returns the checkpoint that BEST names; nullopt if there is no BEST. Throws CheckpointError if BEST is
  /// invalid, or if its checkpoint is missing or damaged.
  std::optional<Checkpoint> best() const;
  /// Returns whether there is a complete checkpoint of a step. Does not verify it.
  bool contains(std::int64_t step) const;
  /// Returns the path of the directory.
  const std::filesystem::path& root() const { return root_; }

 private:
  void write_files(const std::filesystem::path& directory, const Snapshot& snapshot, Manifest manifest) const;
  void put_in_place(const std::filesystem::path& temporary, const std::string& name) const;
  /// Returns the checkpoint name in the file `pointer` (LATEST or BEST); nullopt if there is no valid one.
  std::optional<std::string> named_by(std::string_view pointer) const;
  /// Returns the message for a pointer that named_by() does not accept.
  std::string invalid_pointer(std::string_view pointer) const;
  std::optional<std::string> problem_of_latest() const;
  /// Returns the path of a checkpoint, which has another name while the step is being saved again.
  std::filesystem::path path_of(const std::string& name) const;
  /// Returns the names of all checkpoints, newest first. Steps after that of LATEST come last: an abandoned
  /// training has left them, and the present one has resumed from an earlier step.
  std::vector<std::string> names() const;
  /// Removes the checkpoints that need not be kept.
  void prune() const;

  std::filesystem::path root_;
  int keep_last_ = 3;
  bool keep_best_ = true;
};

/// Reads the manifest of a checkpoint directory and verifies all files. Throws CheckpointError if a file is
/// missing, unreadable or damaged.
Checkpoint open_checkpoint(const std::filesystem::path& directory);

/// Loads a checkpoint into a model, into an optimizer unless that is null, and into `other_weights` unless
/// there are none. If the checkpoint belongs to another model or optimizer, has no such other weights, or
/// cannot be read, changes nothing and throws CheckpointError. Not thread-safe: no other thread uses the
/// model or the optimizer meanwhile.
void load_checkpoint(const Checkpoint& checkpoint, nn::Module& model, optim::Optimizer* optimizer,
                     const std::vector<optim::NamedState>& other_weights = {});

}  // namespace convoy::io
