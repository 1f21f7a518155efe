// The interface between a training step and the other ranks: how their gradients are summed, and when.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/comm/core/communicator.h"
#include "convoy/kernels/base/error.h"
#include "convoy/kernels/runtime/device_context.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy::dist {

/// The span of one bucket's collective on one rank. It begins when the communicator's stream could start the
/// collective, so it includes the wait for ranks that are late.
struct BucketTime {
  int number = 0;         // from 1, in launch order
  std::size_t bytes = 0;  // size of the sent tensor
  double begin_ms = 0;    // relative to the origin passed to times(); negative if before it
  double end_ms = 0;      // relative to the same origin
};

/// A recorder of time marks on the communicator's stream. The marks exist as long as the timer, so a
/// CudaGraph may capture them; each replay of a captured step then measures the buckets again. Not
/// thread-safe.
class BucketTimer {
 public:
  /// Creates a timer for streams of `device`.
  explicit BucketTimer(const DeviceContext& device) : device_(device) {}

  /// Records the begin of bucket `bucket` on `stream`. Bucket 0 begins a new step.
  void begin(std::size_t bucket, std::size_t bytes, const Stream& stream);
  /// Records the end of bucket `bucket` on `stream`.
  void end(std::size_t bucket, const Stream& stream);

  /// Returns the times of the latest step relative to `origin`. Blocks until its marks and `origin` are
  /// reached.
  std::vector<BucketTime> times(const Event& origin) const;

 private:
  struct Span {
    explicit Span(const DeviceContext& device)
        : begin(Event::timed(device.stream())), end(Event::timed(device.stream())) {}
    std::size_t bytes = 0;
    Event begin, end;
  };
  DeviceContext device_;
  std::vector<Span> spans_;  // by bucket
  std::size_t count_ = 0;    // buckets begun in the latest step
};

/// A strategy that sums the gradients of all ranks: GradientSynchronizer (replicas) or ShardedGradients
/// (ZeRO). Each rank calls, in this order:
///
///     reducer.begin_forward(number of micro-batches);
///     for (k in micro-batches) {
///       reducer.begin_step(k is the last micro-batch with samples on this rank);
///       backward(loss, {.accumulate = reducer.accumulates() && k > 0});
///       reducer.end_micro_batch();  // also for a micro-batch without samples on this rank
///     }
///     reducer.finish();
///     optimizer.step(lr);
///     reducer.end_step();
///
/// Each step has the same number of micro-batches on all ranks. One thread uses a reducer. Errors of the
/// communicator are thrown by whichever function is called next. After such an error, no further step is
/// possible. This class itself is the reducer of one rank, which has nothing to sum.
class GradientReducer {
 public:
  virtual ~GradientReducer() = default;

  /// Begins a step of `micro_batches` micro-batches. Starts to gather the parameters that other ranks have
  /// stepped, if there are such. Does not wait: forward waits for each parameter where it first uses it.
  virtual void begin_forward(std::size_t /*micro_batches*/) {}
  /// Prepares for one backward. `last_micro_batch` says whether it is the last one of this step on this rank.
  /// begin_step(false) means "accumulate without synchronizing", like PyTorch's no_sync(), unless
  /// accumulates() is false.
  virtual void begin_step(bool /*last_micro_batch*/) {}
  /// Returns whether backward must add to the gradients of earlier micro-batches. If false, backward
  /// overwrites them, and the reducer accumulates.
  virtual bool accumulates() const { return true; }
  /// Marks the end of one micro-batch. Every rank calls it equally often.
  virtual void end_micro_batch() {}
  /// Completes the sums. Work that is enqueued on the compute stream afterwards may use them. Collective.
  virtual void finish() {}
  /// Marks the end of the step, after the optimizer.
  virtual void end_step() {}
  /// Makes all parameters complete on every rank, for evaluations, checkpoints and comparisons. Collective.
  virtual void gather_parameters() {}

  /// Compares a checksum of each bucket's sums between ranks, which must have the same bits, and throws
  /// CorruptionError on all ranks if they differ. The message contains `when`, such as "after step 12", and
  /// names the bucket and the ranks. Collective; blocks until all ranks have computed their sums. May be
  /// called between finish() and the next step, also after the replay of a captured step. Does nothing if
  /// ranks have different sums.
  virtual void verify_sums(Communicator& /*comm*/, std::string_view /*when*/) {}

  /// Discards a step of which nothing was executed because its capture in a CUDA graph failed.
  virtual void abandon_step() {}
  /// Returns true once neither the bucket plan nor the address of any gradient will change. Steps may be
  /// captured in a CUDA graph from then on.
  virtual bool bucket_plan_final() const { return true; }
  /// Returns the bucket plan that a checkpoint stores, so that a resumed training adds in the same order.
  /// Returns nullopt if the plan follows from the model or is not final.
  virtual std::optional<std::string> plan_to_store() const { return std::nullopt; }

  /// Returns when each bucket of the latest step was reduced, in milliseconds relative to `origin`, a mark on
  /// the communicator's device. A replay of a captured step counts as a step. During a step, returns the
  /// buckets launched so far. Blocks until they are reduced. Throws UsageError if timing was not requested.
  virtual std::vector<BucketTime> bucket_times(const Event& /*origin*/) const { return {}; }
  /// Returns the maximum memory that gradients have used on this rank so far.
  virtual std::size_t gradient_bytes() const { return 0; }
};

/// Waits for the last work of a step that has failed. Work that was only captured in a CUDA graph never runs,
/// and a GPU that has failed runs nothing more, so there is nothing to wait for.
inline void wait_for_abandoned(const Event& done) noexcept {
  try {
    done.wait();
  } catch (const Error&) {
  }
}

}  // namespace convoy::dist
