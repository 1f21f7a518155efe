// What a training step knows of the other ranks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "comm/bucket_timer.h"
#include "kernels/runtime/time_mark.h"

namespace convoy {

/// How the ranks' gradients become one update of one model. Each rank calls, in this order:
///
///     exchange.begin_forward();
///     for (k in micro-batches) {
///       exchange.begin_update(k is the last that has samples here);
///       backward(loss, {.accumulate = exchange.accumulates() && k > 0});
///       exchange.end_micro_batch();  // also of one that has no samples here
///     }
///     exchange.finish();
///     optimizer.step(lr);
///     exchange.end_update();
///
/// Every update has as many micro-batches on one rank as on another. Errors of the communicator are thrown by
/// whatever is called next; after one of them the job is over.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  /// Parameters that other ranks have updated are on their way from here on: forward passes wait for them
  /// where they use them.
  virtual void begin_forward() {}
  /// Before each backward. last: of this update's, on this rank.
  virtual void begin_update(bool last) = 0;
  /// Whether backward adds to the gradients of earlier micro-batches, or writes each one's anew.
  virtual bool accumulates() const { return true; }
  virtual void end_micro_batch() {}
  /// After it the compute stream has the sums that the optimizer reads: what is enqueued there next may use
  /// them.
  virtual void finish() = 0;
  virtual void end_update() {}
  /// Every rank's parameters are whole after it: for evaluations, checkpoints and comparisons, which all
  /// ranks come to alike.
  virtual void gather_parameters() {}

  /// Forgets an update of which nothing has run: its recording in a graph failed.
  virtual void abandon_update() = 0;
  /// True once nothing will move any more: updates may be recorded in a graph.
  virtual bool settled() const = 0;
  /// What a checkpoint keeps so that a resumed training sums in the same order; none where that follows from
  /// the model.
  virtual std::optional<std::string> kept_plan() const { return std::nullopt; }

  /// When the buckets of the latest update (or replay of a recorded one) travelled, in milliseconds after
  /// the origin, a mark on the communicator's device; in the middle of an update, those on their way. Waits
  /// for them. UsageError where they are not timed.
  virtual std::vector<BucketTime> bucket_times(const TimeMark& origin) const = 0;
  /// The most memory that gradients have taken on this rank so far.
  virtual std::size_t gradient_bytes() const = 0;
};

}  // namespace convoy
