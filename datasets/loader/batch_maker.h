// The tasks of the DataLoader's worker threads: the sequence of batches, and the preparation of one batch.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "convoy/datasets/loader/loader.h"

namespace convoy::data {

/// The sample order of one epoch. The first call of get() computes it. Thread-safe.
class EpochOrder {
 public:
  EpochOrder(const LoaderOptions& options, std::int64_t samples, std::int64_t epoch)
      : options_(options), samples_(samples), epoch_(epoch) {}
  const std::vector<std::int32_t>& get();

 private:
  const LoaderOptions& options_;
  std::int64_t samples_;
  std::int64_t epoch_;
  std::once_flag drawn_;
  std::vector<std::int32_t> order_;
};

/// A micro-batch to be prepared.
struct BatchTask {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::int64_t index = 0;
  std::shared_ptr<EpochOrder> order;  // shared by all tasks of the epoch
};

/// Returns the mixing of the task's step for stored images [N, H, W, C]; without TransformSpec::mixing one
/// that changes nothing.
Mixing mixing_of(const LoaderOptions& options, const BatchTask& task, const Shape& images);

/// The sequence of all micro-batches from a given step on, across epochs.
class TaskSequence {
 public:
  /// Starts at `step` of `epoch`. A step after the last one means the start of the next epoch.
  TaskSequence(const LoaderOptions& options, const BatchPlan& plan, std::int64_t epoch, std::int64_t step)
      : options_(&options), plan_(&plan), next_{.epoch = epoch, .step = step} {
    if (step >= plan.steps()) next_ = {.epoch = epoch + 1};
  }
  /// Returns whether the sequence has ended, which happens only with max_epochs or an empty data set.
  bool done() const {
    const std::int64_t end = options_->max_epochs;
    return plan_->steps() == 0 || (end >= 0 && next_.epoch >= end);
  }
  /// Returns the next task and advances.
  BatchTask take();

 private:
  const LoaderOptions* options_;
  const BatchPlan* plan_;
  BatchTask next_;
};

/// Gathers, augments and normalizes the samples of a batch on the CPU. Several threads may call make() at the
/// same time, each with its own stream.
class BatchMaker {
 public:
  BatchMaker(const ImageSet& set, const LoaderOptions& options, const BatchPlan& plan);
  Batch make(CpuStream& stream, const BatchTask& task) const;
  /// Returns the CPU device whose memory the batches are in.
  const DeviceContext& context() const { return device_; }

 private:
  void write_labels(const Tensor& ids, const Tensor& labels) const;
  void augment(CpuStream& stream, const Tensor& ids, const BatchTask& task, const Tensor& images) const;
  /// Returns the stored images `ids`, u8 [n, H, W, C], changed by RandAugment.
  Tensor rand_augmented(CpuStream& stream, const Tensor& ids, const Random& random) const;
  /// Mixes the images of the batch with those of their partners, and sets the partners' labels.
  void mix(CpuStream& stream, const BatchTask& task, const Range& positions, Batch& batch) const;

  const ImageSet& set_;
  const LoaderOptions& options_;
  const BatchPlan& plan_;
  DeviceContext device_;
};

}  // namespace convoy::data
