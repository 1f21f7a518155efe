// SavedOptimizer: the optimizer's state in a checkpoint, read tensor by tensor.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "convoy/engine/io/manifest.h"
#include "convoy/engine/io/safetensors.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/engine/optim/optimizer_shard.h"

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
  void check_cover(const std::string& name, Entry& entry) const;

  std::string source_;     // the checkpoint, for messages
  std::string optimizer_;  // its name
  std::int64_t steps_ = 0;
  int shards_ = 0;  // 0: whole tensors
  std::vector<SafetensorsReader> files_;
  std::map<std::string, Entry> entries_;
};

/// Returns the contents of the file of a shard. The tensors are the pieces, under the names of the whole
/// tensors; the metadata say where each belongs.
SafetensorsLayout lay_out_shard(const optim::OptimizerShard& shard);

}  // namespace convoy::io
