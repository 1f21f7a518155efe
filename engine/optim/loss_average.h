// LossAverage: a moving average of the loss for progress lines, since single batches are noisy.
#pragma once

#include <limits>

#include "convoy/kernels/base/check.h"

namespace convoy::optim {

/// An exponential moving average with the bias correction of Adam's moments (Kingma and Ba, arXiv:1412.6980,
/// section 3): with s_t = decay s_{t-1} + (1 - decay) loss_t and s_0 = 0, the value is s_t / (1 - decay^t).
/// This is a weighted mean of the losses seen. The first value is the first loss; early values are not biased
/// towards 0. Not thread-safe.
class LossAverage {
 public:
  /// The state for a checkpoint. After restore(), the average continues with the same bits.
  struct State {
    double sum = 0;     // s_t
    double weight = 0;  // 1 - decay^t
  };

  /// Averages over about 1 / (1 - decay) losses. Throws UsageError unless decay is in [0, 1).
  explicit LossAverage(double decay = 0.98) : decay_(decay) {
    check(decay >= 0 && decay < 1, "loss average: decay is {}, expected at least 0 and less than 1", decay);
  }

  /// Adds a loss. After a NaN the average stays NaN.
  void add(double loss) {
    state_.sum = decay_ * state_.sum + (1 - decay_) * loss;
    state_.weight = decay_ * state_.weight + (1 - decay_);
  }
  /// Returns the average; NaN before the first loss.
  double value() const {
    return state_.weight > 0 ? state_.sum / state_.weight : std::numeric_limits<double>::quiet_NaN();
  }

  /// Returns the state for a checkpoint.
  State state() const { return state_; }
  /// Continues from a state of an average with the same decay.
  void restore(const State& state) { state_ = state; }

 private:
  double decay_;
  State state_;
};

}  // namespace convoy::optim
