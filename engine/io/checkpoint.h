// Checkpoints: a folder with model.safetensors, optimizer.safetensors and manifest.json, written so that a kill at any
// moment leaves either the previous one or the new one, whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/nn/module.h"
#include "engine/optim/optimizer.h"

namespace convoy {

/// What a checkpoint says beside its tensors.
struct Manifest {
  std::int64_t step = 0;      // updates done
  std::int64_t epoch = 0;     // the epoch that the next step belongs to
  std::int64_t epoch_step = 0;  // updates of that epoch already done
  std::int64_t samples = 0;
  std::string model;          // name
  std::string optimizer;
  std::string dtype;          // of the parameters
  std::map<std::string, double> metrics;     // at saving: test_accuracy, …; NaN is written as null
  std::map<std::string, std::string> extra;  // anything of the program's: resolved configuration, class names, …
};

/// The tensors of a model in checkpoint form: parameters then buffers, torchvision's names, filters in [O, I, kH, kW],
/// host memory; with BatchNorm's num_batches_tracked left out (Python's loaders take it with strict=False, and
/// scripts/ show how).
std::vector<struct NamedTensor> export_tensors(const Module& model);
/// Copies tensors into a model by name. CheckpointError that lists what is missing, unexpected or of another shape;
/// nothing is changed then. f32 and f64 convert into each other; num_batches_tracked is ignored.
void import_tensors(Module& model, const std::vector<struct NamedTensor>& tensors, const std::string& source);

/// xxhash64 of all parameters and buffers in checkpoint order, 16 hex digits: equal for equal networks.
std::string parameters_hash(const Module& model);

/// OUT/checkpoints.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::filesystem::path root);

  /// Writes step_000123 through a temporary folder: files, fsync, rename, fsync of the parent, then LATEST (and BEST
  /// where `best`). Transient write errors are retried; OutputError when they stay, with the temporary removed and
  /// everything older untouched. Then prunes.
  std::filesystem::path save(const Module& model, const Optimizer& optimizer, const Manifest& manifest, bool best);
  /// How many to keep beside the best and the latest; 0: all.
  void set_keep_last(int count) { keep_last_ = count; }
  void set_keep_best(bool keep) { keep_best_ = keep; }

  /// The newest checkpoint that verifies; damaged ones are skipped with a warning into `warnings`. None: nullopt.
  std::optional<std::filesystem::path> latest(std::vector<std::string>* warnings = nullptr) const;
  std::optional<std::filesystem::path> best() const;
  const std::filesystem::path& root() const { return root_; }

 private:
  void prune() const;
  std::filesystem::path root_;
  int keep_last_ = 3;
  bool keep_best_ = true;
};

/// Reads and verifies one checkpoint folder (manifest's checksums against the files). CheckpointError.
Manifest read_manifest(const std::filesystem::path& checkpoint);
/// Into a model, and an optimizer where given. CheckpointError for another model, optimizer or a damaged file; the
/// model is not touched then.
Manifest load_checkpoint(const std::filesystem::path& checkpoint, Module& model, Optimizer* optimizer);

/// Writes a file so that readers see the old bytes or the new: temporary, fsync, rename, fsync of the folder.
void write_file_atomically(const std::filesystem::path& path, const std::string& bytes);

}  // namespace convoy
