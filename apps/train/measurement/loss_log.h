// LossLog: collects the losses of steps on the device, because reading a loss blocks the host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "convoy/comm/core/communicator.h"
#include "convoy/engine/tensor/readback.h"

namespace convoy {

/// The losses of some steps, being copied to the host.
class LossesInFlight {
 public:
  struct Step {
    std::int64_t step;
    int parts;  // number of micro-batches; the loss of the step is their sum
  };
  struct Loss {
    std::int64_t step;
    double value;
  };

  /// Starts the copy. `values` holds the losses of all micro-batches of `steps`, in order.
  LossesInFlight(std::vector<Step> steps, const Tensor& values);
  /// Returns whether losses() would not block.
  bool ready() const { return !values_ || values_->ready(); }
  /// Returns one loss per step. Blocks until the copy is complete.
  std::vector<Loss> losses() const;

 private:
  std::vector<Step> steps_;
  std::unique_ptr<Readback> values_;  // null without steps
};

/// A buffer in device memory for the losses of several steps.
class LossLog {
 public:
  /// Creates a log for losses of type `dtype`, with room for `capacity` micro-batches between two calls of
  /// take(). With a communicator, take() sums each loss over all ranks.
  LossLog(const DeviceContext& device, DType dtype, std::int64_t capacity,
          dist::Communicator* comm = nullptr);

  /// Copies the loss [1] of each micro-batch of a step. Throws UsageError if full(parts.size()). Does not
  /// block.
  void add(std::int64_t step, const std::vector<Tensor>& parts);
  /// Returns whether there is no room for another `parts` micro-batches.
  bool full(std::size_t parts) const { return next_ + static_cast<std::int64_t>(parts) > values_.size(0); }
  /// Returns all losses since the last call and empties the log. Collective if there is a communicator. Does
  /// not block.
  LossesInFlight take();

 private:
  dist::Communicator* comm_;
  Tensor values_;
  std::int64_t next_ = 0;
  std::vector<LossesInFlight::Step> steps_;
};

}  // namespace convoy
