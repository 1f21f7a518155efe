// A training step on a batch that stays where it is: what convoy-bench-overlap measures.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/precision.h"
#include "bench/overlap_record.h"
#include "comm/gradient_exchange.h"
#include "engine/optim/optimizer.h"
#include "kernels/runtime/time_mark.h"
#include "models/model.h"

namespace convoy::bench {

struct StepChoice {
  std::string model = "resnet18";
  std::int64_t batch = 128;
  std::int64_t image_size = 32;
  Precision precision = parse_precision("fp32");
};

/// Forward, backward and an update by SGD with momentum, of grey images.
class LocalStep {
 public:
  LocalStep(const StepChoice& choice, const Device& device);

  /// Enqueues one. gradients: null for one that sums nothing.
  void run(GradientExchange* gradients = nullptr);

  /// Of the latest. Each waits for it.
  double step_ms() const { return elapsed_ms(begin_, end_); }
  double backward_ms() const { return elapsed_ms(forward_, backward_); }
  double exposed_ms() const { return elapsed_ms(backward_, summed_); }  // until the sums were there
  const TimeMark& backward_begin() const { return forward_; }

  const Device& device() const { return device_; }
  const std::vector<NamedParameter>& parameters() const { return parameters_; }

 private:
  Device device_;
  Model model_;
  std::vector<NamedParameter> parameters_;
  Tensor images_, labels_, lr_;
  std::unique_ptr<Optimizer> optimizer_;
  TimeMark begin_, forward_, backward_, summed_, end_;
};

/// Runs the step to warm up, and then `steps` times with a mark where each gradient is ready; on a GPU as one
/// graph, as trainings do.
StepRecord record_step(const StepChoice& choice, int steps, const Device& device);

/// The middle one; the upper of the middle two.
double median(std::vector<double> values);

}  // namespace convoy::bench
