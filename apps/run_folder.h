// OUT: what a run leaves behind, and which checkpoint it goes on from.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "apps/train_options.h"
#include "engine/io/manifest.h"

namespace convoy {

class RunFolder {
 public:
  /// Finds the checkpoint to go on from; writes nothing yet. UsageError where OUT holds a run that nobody
  /// asked to resume, CheckpointError where the one that was asked for is missing.
  explicit RunFolder(const TrainOptions& options);

  std::filesystem::path path(const std::string& name) const { return out_ / name; }
  const std::filesystem::path& out() const { return out_; }
  /// None: start afresh.
  const std::optional<std::filesystem::path>& checkpoint() const { return checkpoint_; }
  const std::vector<std::string>& warnings() const { return warnings_; }

  /// Makes the folder. OutputError where it cannot be written.
  void create() const;

 private:
  std::filesystem::path out_;
  std::optional<std::filesystem::path> checkpoint_;
  std::vector<std::string> warnings_;
};

/// Throws CheckpointError with the first difference between the flags that a checkpoint was trained with and
/// those of now, where the two would not be one training. Returns a line for each difference that changes how
/// long it is.
std::vector<std::string> compare_flags(const std::map<std::string, std::string>& stored,
                                       const std::map<std::string, std::string>& now,
                                       const std::filesystem::path& checkpoint);

}  // namespace convoy
