// LossScaler: dynamic loss scaling whose numbers live on the device, so that a step needs no answer from it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/nn/module.h"
#include "engine/tensor/readback.h"
#include "kernels/loss_scale.h"

namespace convoy {

struct LossScaleSettings {
  double initial = 65536;
  LossScaleOptions options = {};

  /// A scale that never changes; the first overflow fails.
  static LossScaleSettings fixed(double scale);
};

/// Backward starts from seed() instead of 1, and Optimizer::step takes the scaler: it skips the update where
/// a gradient overflowed, divides gradients by the scale, and moves the scale. What a skipped step's forward
/// pass has changed, the running statistics of batch norms, stays changed.
///
/// With several ranks the gradients are summed before they are examined, and infinity and NaN survive a sum
/// with anything: so every rank finds the same, skips the same updates and has the same scale, without asking
/// the others.
class LossScaler {
 public:
  /// loss_dtype: f32 or f64, of the loss that backward starts at (f32 where logits are of a half type).
  /// UsageError for settings that make no sense.
  LossScaler(const Device& device, DType loss_dtype, const LossScaleSettings& settings = {});

  /// The scale, a tensor [1]: what BackwardOptions::seed takes. Always the same memory, as a graph needs.
  const Tensor& seed() const { return scale_; }

  /// What Optimizer::step does with it, in this order; all of it is enqueued.
  /// How many elements are NaN or infinite, i32 [1]: not 0 skips the update. Valid until the next call.
  const Tensor& find_non_finite(std::span<const ConstView> gradients) const;
  /// Moves the scale by what find_non_finite found.
  void update() const;

  struct State {
    double scale = 0;
    std::int64_t good_steps = 0;  // updates since the scale last changed
    std::int64_t skipped = 0;     // updates skipped in all
    bool failed = false;          // gradients overflowed at the least scale: no scale will help
  };
  /// Waits for the device.
  State read() const { return start_reading()->state(); }
  /// The same in two halves, between which the host may go on.
  class Reading {
   public:
    State state() const;  // waits for what the reading is of

   private:
    friend class LossScaler;
    explicit Reading(const LossScaler& scaler);
    Readback scale_, good_steps_, skipped_, failed_;
  };
  std::unique_ptr<Reading> start_reading() const { return std::unique_ptr<Reading>(new Reading(*this)); }
  /// A scale outside the settings' bounds is brought inside: a run may go on with other settings.
  void restore(const State& state) const;

 private:
  LossScaleView view() const;

  LossScaleOptions options_;
  Tensor scale_, good_steps_, skipped_, failed_, non_finite_;
};

/// The name of the first parameter, in the model's order, whose gradient holds a NaN or an infinity; "" where
/// none does. For a message about an overflow: waits for the device.
std::string first_non_finite(const std::vector<NamedParameter>& parameters);

}  // namespace convoy
