// manifest.json: what a checkpoint says beside its tensors, and the sizes and checksums by which it is
// verified.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace convoy {

struct Manifest {
  std::int64_t step = 0;        // updates done
  std::int64_t epoch = 0;       // the epoch that the next step belongs to
  std::int64_t epoch_step = 0;  // updates of that epoch already done
  std::int64_t samples = 0;
  std::string model;                      // name
  std::map<std::string, double> metrics;  // at saving: test_accuracy, …; NaN is written as null
  std::map<std::string, std::string>
      extra;  // anything of the program's: resolved configuration, class names, …

  // Filled by save:
  std::string optimizer;  // name
  std::int64_t optimizer_steps = 0;
  std::string dtype;  // of the parameters
  std::string parameters_hash;
};

inline constexpr std::string_view kModelFile = "model.safetensors";
inline constexpr std::string_view kOptimizerFile = "optimizer.safetensors";
inline constexpr std::string_view kManifestFile = "manifest.json";

/// Size and checksum of a file, taken from the bytes that were meant to be written.
struct FileRecord {
  std::uint64_t bytes = 0;
  std::string xxhash64;
};

/// Writes the manifest of a checkpoint folder and returns when it is on the disk. files: by name.
/// OutputError.
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest,
                    const std::map<std::string, FileRecord>& files);

/// Reads the manifest of a checkpoint folder and verifies it, and both files against it. CheckpointError.
Manifest read_manifest(const std::filesystem::path& checkpoint);

}  // namespace convoy
