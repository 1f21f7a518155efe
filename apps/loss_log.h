// Losses as they come: left on the device until somebody wants to read them, since reading makes the host
// wait.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "engine/tensor/readback.h"

namespace convoy {

/// The losses of some steps, on their way to the host.
class LossesInFlight {
 public:
  struct Step {
    std::int64_t step;
    int parts;  // micro-batches; the step's loss is their sum
  };
  struct Loss {
    std::int64_t step;
    double value;
  };

  LossesInFlight(std::vector<Step> steps, const Tensor& values);
  /// Whether losses() would not wait.
  bool ready() const { return !values_ || values_->ready(); }
  std::vector<Loss> losses() const;

 private:
  std::vector<Step> steps_;
  std::unique_ptr<Readback> values_;  // null where there are no steps
};

class LossLog {
 public:
  /// Of losses in dtype, at most so many parts between two calls of take(). With a communicator a loss is the
  /// sum of all ranks' parts of it.
  LossLog(const Device& device, DType dtype, std::int64_t capacity, Communicator* comm = nullptr);

  /// Copies the loss of each micro-batch of a step, one element each.
  void add(std::int64_t step, const std::vector<Tensor>& parts);
  bool full(std::size_t parts) const { return next_ + static_cast<std::int64_t>(parts) > values_.size(0); }
  /// Everything since the last call. With a communicator, every rank calls it after the same steps.
  LossesInFlight take();

 private:
  Communicator* comm_;
  Tensor values_;
  std::int64_t next_ = 0;
  std::vector<LossesInFlight::Step> steps_;
};

}  // namespace convoy
