// RunDirectory: the output directory of a run and the checkpoint that the run resumes from.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convoy/apps/train/options/options.h"
#include "convoy/datasets/dataset.h"
#include "convoy/engine/io/checkpoint.h"

namespace convoy {

/// The output directory of a run (--out).
class RunDirectory {
 public:
  /// Finds the checkpoint to resume from. Writes nothing. Throws UsageError if the directory contains a run
  /// and --resume is not given, OutputError if --out cannot be a directory, and CheckpointError if the
  /// checkpoint of --resume is missing.
  explicit RunDirectory(const TrainOptions& options);

  std::filesystem::path path(const std::string& name) const { return out_ / name; }
  const std::filesystem::path& out() const { return out_; }
  /// Returns the checkpoint to resume from; nullopt for a new run.
  const std::optional<io::Checkpoint>& checkpoint() const { return checkpoint_; }
  /// Returns warnings about damaged checkpoints that were skipped.
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Creates the directory. Throws OutputError if it cannot be created or written.
  void create() const;

 private:
  std::filesystem::path out_;
  std::optional<io::Checkpoint> checkpoint_;
  std::vector<std::string> warnings_;
};

/// Compares the flags of a checkpoint with the current flags. Throws CheckpointError for the first difference
/// that would change the training, such as --momentum. Returns one warning per difference in its length or in
/// --lr.
std::vector<std::string> compare_flags(const std::map<std::string, std::string>& stored,
                                       const std::map<std::string, std::string>& current,
                                       const std::filesystem::path& checkpoint);

/// The entry of Manifest::extra with the text of image_counts().
inline constexpr const char* kImageCounts = "images";
/// Returns the numbers of images of a data set as a text.
std::string image_counts(const data::DataSet& data);

/// The entry of Manifest::extra with class_weights_text().
inline constexpr const char* kClassWeights = "class_weights";

/// Compares the classes and the numbers of images of a checkpoint with those of a data set, and its class weights with
/// `weights`. Throws CheckpointError, which names the difference.
void compare_data(const io::Checkpoint& checkpoint, const data::DataSet& data, const std::string& weights);

}  // namespace convoy
