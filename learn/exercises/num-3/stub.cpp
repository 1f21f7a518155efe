// The loss is multiplied by `scale` before the backward pass, and the gradients are divided by it. If a scaled gradient is
// infinite or NaN, the step must not be taken: the weights would be lost.
class Scaler {
 public:
  explicit Scaler(int interval) : interval_(interval) {}

  // Is called once per step, after the backward pass. Returns whether the step may be taken. After an overflow, the scale is
  // halved, but not below 1. After `interval` steps in a row without an overflow, it is doubled, and they are counted from 0.
  bool update(bool has_overflow) {
    // TODO
    return true;
  }

  double scale() const { return scale_; }

 private:
  int interval_, good_steps_ = 0;
  double scale_ = 65536;
};
