class Scaler {
 public:
  explicit Scaler(int interval) : interval_(interval) {}

  bool update(bool has_overflow) {
    if (has_overflow) {
      scale_ = scale_ / 2 < 1 ? 1 : scale_ / 2;
      good_steps_ = 0;
    } else if (++good_steps_ == interval_) {
      scale_ *= 2;
      good_steps_ = 0;
    }
    return !has_overflow;
  }

  double scale() const { return scale_; }

 private:
  int interval_, good_steps_ = 0;
  double scale_ = 65536;
};
