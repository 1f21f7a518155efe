// LossLog: collects the losses of steps and their counts of correct samples on the device, because reading them
// blocks the host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "convoy/comm/core/communicator.h"
#include "convoy/engine/tensor/readback.h"
#include "convoy/engine/training/callback.h"

namespace convoy {

/// What a step computes on one micro-batch, in device memory.
struct MicroBatchResult {
  Tensor loss;  // [1]: the part of the mean loss of the global batch
  /// [1], of the type of the loss: the number of samples whose label has the largest logit. Undefined if labels are
  /// mixed.
  Tensor correct;
};

/// The losses of some steps, being copied to the host.
class LossesInFlight {
 public:
  struct Step {
    training::StepResult result;  // without the loss and the count
    int parts;                    // number of micro-batches; the loss of the step is their sum
  };

  /// Starts the copy. `values` holds the loss and the count of all
  /// micro-batches of `steps`, in order; the count is NaN if there is none.
  LossesInFlight(std::vector<Step> steps, const Tensor& values);
  /// Returns whether results() would not block.
  bool ready() const { return !values_ || values_->ready(); }
  /// Returns the result of each step. Blocks until the copy is complete.
  std::vector<training::StepResult> results() const;

 private:
  std::vector<Step> steps_;
  std::unique_ptr<Readback> values_;  // null without steps
};

/// A buffer in device memory for the losses and counts of several steps.
class LossLog {
 public:
  /// Creates a log for losses of type `dtype`, with room for `capacity` micro-batches between two calls of
  /// take(). With a communicator, take() sums the losses and counts over all ranks.
  LossLog(const DeviceContext& device, DType dtype, std::int64_t capacity,
          dist::Communicator* comm = nullptr);

  /// Copies the results of the micro-batches of a step, whose position is `step`. Throws UsageError if
  /// full(parts.size()). Does not block.
  void add(const training::StepResult& step, const std::vector<MicroBatchResult>& parts);
  /// Returns whether there is no room for another `parts` micro-batches.
  bool full(std::size_t parts) const {
    return next_ + 2 * static_cast<std::int64_t>(parts) > values_.size(0);
  }
  /// Returns all losses since the last call and empties the log. Collective if there is a communicator. Does
  /// not block.
  LossesInFlight take();

 private:
  dist::Communicator* comm_;
  Tensor values_;  // a loss and a count for each micro-batch
  std::int64_t next_ = 0;
  std::vector<LossesInFlight::Step> steps_;
};

}  // namespace convoy
