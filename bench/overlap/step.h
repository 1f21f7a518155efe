// A training step on a fixed batch, which convoy-bench-overlap measures.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/overlap/record.h"
#include "convoy/apps/common/precision.h"
#include "convoy/comm/parallel/gradient_reducer.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/kernels/runtime/device_context.h"
#include "convoy/kernels/runtime/event.h"
#include "convoy/models/model.h"

namespace convoy::bench {

/// The network, batch and precision of a step.
struct StepChoice {
  std::string model = "resnet18";
  std::int64_t batch = 128;
  std::int64_t image_size = 32;
  Precision precision = parse_precision("fp32");
};

/// A repeatable training step on one rank: forward, backward and SGD with momentum on a batch of constant
/// images. Not thread-safe.
class LocalStep {
 public:
  LocalStep(const StepChoice& choice, const DeviceContext& device);

  /// Enqueues one step. `gradients` reduces the gradients; null for a step without communication.
  void run(dist::GradientReducer* gradients = nullptr);

  /// Return the times of the latest step. Block until it has completed.
  double step_ms() const { return elapsed_ms(begin_, end_); }
  double backward_ms() const { return elapsed_ms(forward_, backward_); }
  double exposed_ms() const {
    return elapsed_ms(backward_, summed_);
  }  // from the end of backward until the sums were complete
  const Event& backward_begin() const { return forward_; }

  const DeviceContext& context() const { return device_; }
  const std::vector<nn::NamedParameter>& parameters() const { return parameters_; }

 private:
  DeviceContext device_;
  models::Model model_;
  std::vector<nn::NamedParameter> parameters_;
  Tensor images_, labels_, lr_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Event begin_, forward_, backward_, summed_, end_;
};

/// Runs warm-up steps and then `steps` measured ones with a timestamp at which each gradient is ready. On a
/// GPU the step is replayed as a CUDA graph, as in training.
StepRecord record_step(const StepChoice& choice, int steps, const DeviceContext& device);

/// Returns the median; for an even number of values, the upper of the middle two. `values` must not be empty.
double median(std::vector<double> values);

}  // namespace convoy::bench
