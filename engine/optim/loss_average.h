// A running mean of the loss for progress lines: what a single batch says is mostly noise.
#pragma once

namespace convoy {

/// Exponential moving average, bias-corrected as Adam's moments are (Kingma and Ba, arXiv:1412.6980, section
/// 3): with s_t = decay s_{t-1} + (1 - decay) loss_t, s_0 = 0, the value is s_t / (1 - decay^t), a weighted
/// mean of exactly the losses seen. So the first value is the first loss, and early ones do not lean towards
/// 0.
class LossAverage {
 public:
  /// All that a resume needs; restoring it continues bit for bit.
  struct State {
    double sum = 0;     // s_t
    double weight = 0;  // 1 - decay^t
  };

  /// decay in [0, 1): about 1 / (1 - decay) losses count. UsageError outside.
  explicit LossAverage(double decay = 0.98);

  /// A NaN stays: it is for the caller to stop at it.
  void add(double loss);
  /// NaN before the first loss.
  double value() const;

  State state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  double decay_;
  State state_;
};

}  // namespace convoy
