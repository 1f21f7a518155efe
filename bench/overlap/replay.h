// Real training steps whose gradient communication takes the time of a simulated link.
#pragma once

#include <memory>

#include "bench/overlap/link.h"
#include "bench/overlap/step.h"
#include "convoy/comm/core/communicator.h"

namespace convoy::bench {

/// Returns rank 0 of a CPU communicator with as many ranks as the link has. The other ranks are emulated and
/// contribute zeros, so sums leave the data unchanged. An all-reduce takes the time of the link plus the time
/// to wake a thread. The communication thread sleeps meanwhile: unlike with real ranks, backward loses
/// neither a core nor memory bandwidth to it.
std::unique_ptr<dist::Communicator> make_link_communicator(const Link& link);

/// The exposed communication of real steps in milliseconds: medians over the steps.
struct RealExposure {
  double waited_ms = 0;  // from the end of backward until the sums were complete
  double longer_ms = 0;  // additional time compared with a step without communication
};

/// Pairs of real steps, with and without gradient communication.
class LinkSteps {
 public:
  /// Throws UsageError if `device` is a GPU.
  LinkSteps(const StepChoice& choice, const DeviceContext& device);

  /// Runs one warm-up pair and `steps` measured pairs. A pair is a step without communication and a step that
  /// sends its gradients over the link with the bucket plan `plan`, in the type `sent`.
  RealExposure measure(int steps, const dist::BucketPlan& plan, DType sent, const Link& link);

 private:
  LocalStep alone_, linked_;
};

}  // namespace convoy::bench
