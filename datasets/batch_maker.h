// What the DataLoader's threads do: which batch comes next, and how one is made.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "datasets/loader.h"

namespace convoy {

/// The order of one epoch, drawn by whichever thread needs it first.
class EpochOrder {
 public:
  EpochOrder(std::int64_t samples, std::uint64_t seed, std::int64_t epoch, bool shuffle)
      : samples_(samples), seed_(seed), epoch_(epoch), shuffle_(shuffle) {}
  const std::vector<std::int32_t>& get();

 private:
  std::int64_t samples_;
  std::uint64_t seed_;
  std::int64_t epoch_;
  bool shuffle_;
  std::once_flag drawn_;
  std::vector<std::int32_t> order_;
};

/// One micro-batch to be made.
struct BatchTask {
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::int64_t index = 0;
  std::shared_ptr<EpochOrder> order;  // shared by the tasks of an epoch, gone with the last of them
};

/// All micro-batches from a given update on, one after the other, across epochs.
class TaskSequence {
 public:
  /// A step past the last one of its epoch: the start of the next.
  TaskSequence(const LoaderOptions& options, const BatchPlan& plan, std::int64_t epoch, std::int64_t step)
      : options_(&options), plan_(&plan), next_{.epoch = epoch, .step = step} {
    if (step >= plan.steps()) next_ = {.epoch = epoch + 1};
  }
  bool done() const {
    const std::int64_t end = options_->max_epochs;
    return plan_->steps() == 0 || (end >= 0 && next_.epoch >= end);
  }
  BatchTask take();

 private:
  const LoaderOptions* options_;
  const BatchPlan* plan_;
  BatchTask next_;
};

/// Gathers, augments and normalises. Any number of threads may call make(), each with its own stream.
class BatchMaker {
 public:
  BatchMaker(const ImageSet& set, const LoaderOptions& options, const BatchPlan& plan);
  Batch make(CpuStream& stream, const BatchTask& task) const;
  const Device& device() const { return device_; }  // on the CPU

 private:
  const ImageSet& set_;
  const LoaderOptions& options_;
  const BatchPlan& plan_;
  Device device_;
};

}  // namespace convoy
