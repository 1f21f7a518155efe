// The hardest samples of each step: a file that one training writes (--hardest) and another one reads
// (--selection).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "convoy/datasets/loader/loader.h"
#include "convoy/engine/tensor/tensor.h"

namespace convoy {

/// Name of the file in the directory of a run.
inline constexpr const char* kSelectionFile = "selection.safetensors";

/// Returns how many of `count` samples are chosen: the fraction, rounded up.
std::int64_t hardest_count(double fraction, std::int64_t count);

/// What a file of chosen samples states about them.
struct SelectionInfo {
  std::int64_t batch_size = 0;  // chosen samples of a step with a full batch
  std::int64_t epochs = 0;
  std::int64_t steps = 0;  // recorded so far
  std::int64_t seed = 0;   // of the training that chose
  std::string data;        // hash_of() the training images
};

/// The chosen samples of a run.
struct Selection {
  SelectionInfo info;
  Tensor ids;  // i32 [epochs, chosen samples of an epoch], -1 where no step was recorded
};

/// Reads the file in the directory `run`, or the file `run`. Throws CheckpointError if it is missing or
/// damaged.
Selection read_selection(const std::filesystem::path& run);

/// Returns the chosen samples of a run for LoaderOptions::order. Throws UsageError if they were chosen from
/// other images than `train`.
Tensor selected_order(const std::string& run, const data::ImageSet& train);

/// Records the samples that a training chooses.
class SelectionRecorder {
 public:
  /// Allocates memory on `device` for `steps` steps, each of which chooses the `fraction` of a batch of
  /// `batch_size` images of `train`. The file is written to `directory`.
  SelectionRecorder(const std::filesystem::path& directory, double fraction, std::int64_t batch_size,
                    const data::ImageSet& train, std::int64_t seed, std::int64_t steps,
                    const DeviceContext& device);
  /// Enqueues a copy of the chosen `ids`, i32 [k], of a step.
  void record(const data::Batch& batch, const Tensor& ids);
  /// Writes the choices of all steps so far, which are `steps`. Blocks until the device has chosen them.
  /// Throws OutputError.
  void save(std::int64_t steps) const;
  /// Reads the choices of the first `steps` steps of `run`, which the training continues. Throws
  /// CheckpointError if the file is missing or damaged, or has fewer steps.
  void load(const std::filesystem::path& run, std::int64_t steps);

 private:
  std::filesystem::path path_;
  SelectionInfo info_;
  Tensor ids_;  // as in Selection
};

}  // namespace convoy
