// WeightAverage: a moving average of the weights of a model, for EMA and Lookahead.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "convoy/engine/nn/module.h"
#include "convoy/engine/optim/optimizer.h"

namespace convoy::optim {

/// Returns the decay of an exponential moving average after `step` steps: `decay`, but at most (1 + step) /
/// (10 + step), so that the initial weights are soon forgotten, as in TensorFlow's ExponentialMovingAverage.
double ema_decay(double decay, std::int64_t step);

/// A moving average of all parameters and running statistics of a model, w, in the model's memory and types:
///   update(weight):  average += weight (w - average).
/// Two methods use it:
/// - An exponential moving average (EMA): update(1 - decay) after each step. Evaluations and checkpoints use the average,
///   which swap() puts into the model and out of it.
/// - Lookahead (Zhang et al., arXiv:1907.08610): after every few steps update(alpha) and write_back(). The average is
///   the paper's slow weights, and the model has its fast weights.
///
/// All functions but state() enqueue work on the model's device and do not wait for it. All parameters must be complete
/// on this rank. Not thread-safe.
class WeightAverage {
 public:
  /// Makes an average that is equal to the weights of `model`, which must outlive this object and stay on its
  /// device, in its type. Throws UsageError if a parameter or a buffer is neither f32 nor f64.
  explicit WeightAverage(nn::Module& model);

  /// Sets the average to the weights.
  void reset();
  /// Sets the running statistics of the average, and other buffers, to those of the model.
  void reset_buffers();
  /// Moves the average by the fraction `weight` of the difference to the weights. Throws UsageError unless
  /// `weight` is from 0 to 1.
  void update(double weight);
  /// Sets the weights, and their low-precision copies, to the average.
  void write_back();
  /// Exchanges the weights and the average. Refreshes the low-precision copies.
  void swap();

  /// Returns the tensors of the average, named "<kind>/<parameter or buffer>". They share its memory, so that
  /// a checkpoint can be read into them.
  std::vector<NamedState> state(std::string_view kind) const;

 private:
  /// Sets the average of weights_ from `first` on to these.
  void copy_weights(std::size_t first);

  nn::Module& model_;
  std::vector<NamedState> weights_;  // of the model; share its memory; parameters first
  std::size_t parameters_ = 0;       // how many of these are parameters
  std::vector<Tensor> average_;      // in the same order
  Tensor weight_;                    // f64 [1]: of update()
  Tensor minus_one_, steps_;         // f64 [1]: see update()
};

/// Keeps the average in the model for its lifetime, and the trained weights in the average.
class SwappedWeights {
 public:
  /// Swaps both. Does nothing if `average` is null.
  explicit SwappedWeights(WeightAverage* average) : average_(average) {
    if (average_ != nullptr) average_->swap();
  }
  /// Swaps both back.
  ~SwappedWeights() {
    try {
      if (average_ != nullptr) average_->swap();
    } catch (const DeviceError&) {  // the device has failed, and its memory cannot be used again
    }
  }
  SwappedWeights(const SwappedWeights&) = delete;
  SwappedWeights& operator=(const SwappedWeights&) = delete;

 private:
  WeightAverage* average_;
};

}  // namespace convoy::optim
