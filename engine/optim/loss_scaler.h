// LossScaler: dynamic loss scaling with its state in device memory, so that steps do not wait for the device.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "convoy/engine/nn/module.h"
#include "convoy/engine/tensor/tensor.h"
#include "convoy/kernels/optimizer_step.h"

namespace convoy::optim {

/// The initial scale, and how the scale changes.
struct LossScaleSettings {
  double initial = 65536;                  // the first scale, within the bounds of `options`
  kernels::LossScaleOptions options = {};  // how the scale grows and shrinks

  /// Returns settings for a scale that never changes. The first overflow fails.
  static LossScaleSettings fixed(double scale);
};

/// Dynamic loss scaling. Start backward from seed() instead of 1 and pass the scaler to Optimizer::step().
/// The step divides gradients by the scale, is skipped if a gradient overflowed, and adjusts the scale. The
/// forward pass of a skipped step has still updated the running statistics of batch norms.
///
/// Data-parallel ranks sum their gradients before the check, and infinities and NaNs survive a sum. All ranks
/// therefore find the same result, skip the same steps and have the same scale without communicating.
///
/// Not thread-safe: the thread of the compute stream uses the scaler. Another thread may wait for a Reading.
class LossScaler {
 public:
  /// `loss_dtype` is the type of the loss that backward starts from, f32 or f64 (f32 if the logits are f16 or
  /// bf16). Throws UsageError for invalid settings.
  LossScaler(const DeviceContext& device, DType loss_dtype, const LossScaleSettings& settings = {});

  /// Returns the scale, [1], for BackwardOptions::seed. Its memory never changes, as CUDA graphs require.
  const Tensor& seed() const { return scale_; }

  // Optimizer::step() calls the following two, in this order. Both enqueue work and do not wait for the
  // device.

  /// Counts the elements that are NaN or infinite. Returns i32 [1]; a count other than 0 skips the step. The
  /// tensor is valid until the next call.
  const Tensor& find_non_finite(std::span<const ConstView> gradients) const;
  /// Adjusts the scale by the last result of find_non_finite().
  void update() const;

  /// The state for logs and checkpoints.
  struct State {
    double scale = 0;             // the factor of the loss
    std::int64_t good_steps = 0;  // steps since the scale last changed
    std::int64_t skipped = 0;     // total of skipped steps
    bool failed = false;          // gradients overflowed at the minimum scale: no scale will help
  };
  /// Returns the state. Blocks until the device has computed it.
  State read() const { return start_reading()->state(); }
  /// An asynchronous read of the state.
  class Reading {
   public:
    /// Blocks until the device has computed the state, then returns it.
    State state() const;

   private:
    friend class LossScaler;
    explicit Reading(const LossScaler& scaler);
    Readback scale_, good_steps_, skipped_, failed_;
  };
  /// Starts to read the state after the work enqueued so far, and returns without waiting.
  std::unique_ptr<Reading> start_reading() const { return std::unique_ptr<Reading>(new Reading(*this)); }
  /// Sets the state, as when a run resumes. Clamps the scale to the settings' bounds, which may have changed.
  /// Throws UsageError for an invalid state.
  void restore(const State& state) const;

 private:
  kernels::LossScaleView view() const;

  kernels::LossScaleOptions options_;
  Tensor scale_, good_steps_, skipped_, failed_, non_finite_;
};

/// Returns the name of the first parameter whose gradient holds a NaN or an infinity, or "" if there is none.
/// Used in error messages about overflows. Blocks until the device has checked the gradients.
std::string first_non_finite(const std::vector<nn::NamedParameter>& parameters);

}  // namespace convoy::optim
