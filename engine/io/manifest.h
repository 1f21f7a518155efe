// manifest.json: the metadata of a checkpoint, and the sizes and checksums that verify its files. The
// functions are thread-safe, but only one thread or process at a time may write to a directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace convoy::io {

inline constexpr std::string_view kModelFile = "model.safetensors";          // parameters and buffers
inline constexpr std::string_view kOptimizerFile = "optimizer.safetensors";  // state of the optimizer
/// Snapshot::other_weights; only in checkpoints of trainings that have them.
inline constexpr std::string_view kOtherWeightsFile = "other_weights.safetensors";
inline constexpr std::string_view kManifestFile = "manifest.json";  // the manifest

/// Returns the name of the file with one shard of an optimizer's state: optimizer-00001-of-00004.safetensors
/// for shard 0 of 4.
std::string shard_file(int index, int count);

/// Size and checksum of a file, computed from the bytes in memory and not from the file.
struct FileRecord {
  std::uint64_t bytes = 0;  // the size of the file
  std::string xxhash64;     // of its bytes, 16 hex digits
};

/// The metadata of a checkpoint.
struct Manifest {
  std::int64_t step = 0;                  // steps done
  std::int64_t epoch = 0;                 // the epoch of the next step
  std::int64_t epoch_step = 0;            // steps of that epoch already done
  std::int64_t samples = 0;               // samples of all ranks in all steps
  std::string model;                      // name of the model
  std::map<std::string, double> metrics;  // when saved: test_accuracy, …; NaN is written as null
  /// Free for use by the program: resolved configuration, class names, …
  std::map<std::string, std::string> extra;

  // Set by CheckpointDirectory::save().
  std::string optimizer;                    // name of the optimizer
  std::int64_t optimizer_steps = 0;         // OptimizerState::steps
  std::string dtype;                        // of the parameters: "f32"; "" if there are none
  std::string parameters_hash;              // io::parameters_hash() of the model
  std::map<std::string, FileRecord> files;  // the other files of the checkpoint, by name

  /// Returns the number of shards in which the optimizer's state is stored; 0 if it is in kOptimizerFile.
  int shards() const {
    if (files.contains(std::string(kOptimizerFile))) return 0;
    return static_cast<int>(files.size()) - (has_other_weights() ? 2 : 1);
  }
  /// Returns whether the checkpoint has Snapshot::other_weights.
  bool has_other_weights() const { return files.contains(std::string(kOtherWeightsFile)); }
};

/// Writes the manifest of a checkpoint directory, and blocks until it is on disk. Throws OutputError if the
/// write fails, UsageError if the manifest is too large to be read.
void write_manifest(const std::filesystem::path& directory, const Manifest& manifest);

/// Reads the manifest of a checkpoint directory, and verifies it and all files by size and checksum. Throws
/// CheckpointError if a file is missing, unreadable or damaged.
Manifest read_manifest(const std::filesystem::path& checkpoint);

}  // namespace convoy::io
