// manifest.json: the metadata of a checkpoint, and the sizes and checksums that verify its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace convoy::io {

/// The metadata of a checkpoint.
struct Manifest {
  std::int64_t step = 0;        // steps done
  std::int64_t epoch = 0;       // the epoch of the next step
  std::int64_t epoch_step = 0;  // steps of that epoch already done
  std::int64_t samples = 0;
  std::string model;                      // name
  std::map<std::string, double> metrics;  // when saved: test_accuracy, …; NaN is written as null
  /// Free for use by the program: resolved configuration, class names, …
  std::map<std::string, std::string> extra;

  // Set by CheckpointDirectory::save().
  std::string optimizer;  // name
  std::int64_t optimizer_steps = 0;
  std::string dtype;  // of the parameters
  std::string parameters_hash;
};

inline constexpr std::string_view kModelFile = "model.safetensors";
inline constexpr std::string_view kOptimizerFile = "optimizer.safetensors";
inline constexpr std::string_view kManifestFile = "manifest.json";

/// Size and checksum of a file, computed from the bytes in memory and not from the file.
struct FileRecord {
  std::uint64_t bytes = 0;
  std::string xxhash64;
};

/// Writes the manifest of a checkpoint directory with the records of its files by name, and blocks until it
/// is on disk. Throws OutputError if the write fails, UsageError if the manifest is too large to be read.
void write_manifest(const std::filesystem::path& directory, const Manifest& manifest,
                    const std::map<std::string, FileRecord>& files);

/// Reads the manifest of a checkpoint directory, and verifies it and both files by size and checksum. Throws
/// CheckpointError if a file is missing, unreadable or damaged.
Manifest read_manifest(const std::filesystem::path& checkpoint);

}  // namespace convoy::io
