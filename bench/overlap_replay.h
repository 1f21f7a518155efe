// The same transfers in real steps: GradientSynchronizer on a communicator that takes a link's time.
#pragma once

#include <memory>

#include "bench/overlap_link.h"
#include "bench/overlap_step.h"
#include "comm/communicator.h"

namespace convoy::bench {

/// Rank 0 of as many as the link joins, on the CPU. The others bring zeros: sums leave what is here, and take
/// as long as the link would and the machine takes to wake a thread. That thread sleeps, so backward loses
/// neither a core nor bandwidth to it, as it would to real ranks.
std::unique_ptr<Communicator> make_link_communicator(const Link& link);

/// Milliseconds, medians over the steps.
struct RealExposure {
  double waited_ms = 0;  // from the end of backward until the sums were there
  double longer_ms = 0;  // how much longer a step took than one that sums nothing
};

class LinkSteps {
 public:
  /// UsageError for a GPU.
  LinkSteps(const StepChoice& choice, const Device& device);

  /// A pair of steps to warm up, and then `steps` pairs: one that sums nothing, and one with its gradients on
  /// the link, by this plan and in this type.
  RealExposure measure(int steps, const BucketPlan& plan, DType sent, const Link& link);

 private:
  LocalStep alone_, linked_;
};

}  // namespace convoy::bench
