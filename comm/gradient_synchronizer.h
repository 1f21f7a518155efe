// Sums gradients over the ranks while backward still runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/bucket_plan.h"
#include "comm/bucket_timer.h"
#include "comm/communicator.h"
#include "comm/gradient_exchange.h"
#include "engine/nn/module.h"
#include "kernels/runtime/stream_event.h"
#include "kernels/runtime/time_mark.h"

namespace convoy {

struct GradientSynchronizerOptions {
  double bucket_mb = 10;  // MiB of gradients, the most that a bucket holds
  /// What gradients are rounded to, to nearest even, before they are sent: f16 or bf16. Sums are the
  /// communicator's and come back in this type. None: they travel as they are.
  std::optional<DType> grad_dtype = {};
  /// Keeps the plan by order of registration, which is the same in every run.
  bool deterministic = false;
  /// An earlier run's plan().text(), which is kept: libraries may sum in another order for another plan.
  std::optional<std::string> plan = {};
  /// Marks around every bucket's transfer, for bucket_times().
  bool time_buckets = false;
};

/// Gives every parameter's gradient its place in a bucket, a flat tensor that is summed over the ranks as
/// soon as backward has written the whole of it and the buckets before it are on their way. Sums, not means:
/// each rank's loss is its part of the mean over all samples, so shares may differ, and be empty.
///
///     for (k in micro-batches) {
///       gradients.begin_update(k is the last);
///       backward(loss, {.accumulate = k > 0});
///     }
///     gradients.finish();  // by every rank, once an update, also where it had nothing to compute
///     optimizer.step(lr);  // every rank takes the same step
///
/// Errors of the communicator are thrown by begin_update(), by a launch inside backward, and by finish(); on
/// a GPU, which the host is ahead of, by a later one of them. After one of them the job is over.
class GradientSynchronizer final : public GradientExchange {
 public:
  /// The model has its device and type by now. The communicator outlives the synchronizer. UsageError where
  /// the parameters are not all of one type, on the communicator's device.
  GradientSynchronizer(std::vector<NamedParameter> parameters, Communicator& comm,
                       const GradientSynchronizerOptions& options = {});
  /// In the middle of an update: ends the others' waiting for it.
  ~GradientSynchronizer() override;
  GradientSynchronizer(const GradientSynchronizer&) = delete;
  GradientSynchronizer& operator=(const GradientSynchronizer&) = delete;

  /// Before each backward. launch: this is the update's last one, and buckets go as they become complete;
  /// what holds where this is not called.
  void begin_update(bool launch) override;
  /// After it the compute stream has the sums: what is enqueued there next may use them. The host waits on
  /// the CPU; on a GPU only where a parameter got no gradient here, to learn whether it did elsewhere, and
  /// in the one update after which the plan changes.
  ///
  /// A parameter without a gradient here adds zeros. Its gradient is fresh here too where any rank has one.
  void finish() override;
  void abandon_update() override;

  /// What the latest finished update's backward gave no gradient, by name: here, and of these, on no rank.
  struct Missing {
    std::vector<std::string> here, everywhere;
  };
  const Missing& missing() const { return missing_; }

  /// UsageError without time_buckets.
  std::vector<BucketTime> bucket_times(const TimeMark& origin) const override;
  std::size_t gradient_bytes() const override;

  const BucketPlan& plan() const { return plan_; }
  /// True once neither the plan nor the gradients' addresses will change.
  bool settled() const override { return settled_; }
  std::optional<std::string> kept_plan() const override {
    return settled_ ? std::optional(plan_.text()) : std::nullopt;
  }
  /// Elements at the end of the last bucket's transfer that are no gradients: a flag a parameter.
  std::int64_t flag_count() const { return static_cast<std::int64_t>(parameters_.size()); }

 private:
  struct Bucket {
    Bucket(const BucketPlan::Bucket& plan, std::int64_t numel, const Tensor& like,
           std::optional<DType> sent_dtype);
    Tensor gradients;
    Tensor sent;  // rounded; undefined: the gradients themselves travel
    std::size_t incomplete;
    StreamEvent ready, done;
  };
  struct State {
    Tensor slice;
    std::size_t bucket = 0;
    bool has_gradient = false;  // from any backward of this update
    bool is_final = false;      // from the one in which buckets are launched
  };

  void make_buckets();
  void on_ready(std::size_t parameter);
  void launch_next();
  void zero_missing();
  void learn_of_missing();
  void measure(std::size_t parameter);
  void plan_anew();
  Stream compute_stream() const { return buckets_.front().gradients.stream(); }
  Tensor flags() const;

  std::vector<NamedParameter> parameters_;
  Communicator& comm_;
  std::optional<DType> sent_dtype_;
  std::vector<std::int64_t> numels_;
  BucketLimits limits_;
  BucketPlan plan_;
  bool settled_;

  std::vector<Bucket> buckets_;
  std::vector<State> states_;  // by parameter
  bool launching_ = true;
  std::size_t launched_ = 0;  // buckets of this update
  std::int64_t updates_ = 0;
  Missing missing_;
  std::optional<BucketTimer> timer_;
  std::vector<TimeMark> marks_;  // in the order of measured_
  std::vector<std::size_t> measured_;
};

}  // namespace convoy
