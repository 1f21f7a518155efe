// Data-parallel gradient reduction that overlaps with backward.
//
// Every gradient is stored in a slice of a bucket, a flat tensor. Three mechanisms work together:
//
// 1. Hook. When backward has enqueued the last contribution to a parameter's gradient, it calls the hook that
//    the constructor has set on that parameter (Variable::on_grad_ready). The gradient is then ready.
// 2. Counter. Each bucket counts its gradients that are not ready yet. At zero, the bucket is ready. Ready
//    buckets are launched strictly in plan order, because all ranks must launch the same collectives in the
//    same order.
// 3. Communication stream. A launch records an event on the compute stream, makes the communicator's stream
//    wait for it, and enqueues an all-reduce there. It returns at once, and backward continues. finish()
//    makes the compute stream wait for all all-reduces, so the optimizer runs after them.
//
//     compute stream   | backward: layer 3 | layer 2 | layer 1 |      wait      | optimizer |
//     communication                        | all-reduce 1 |    | all-reduce 2 |
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convoy/comm/core/communicator.h"
#include "convoy/comm/parallel/bucket_plan.h"
#include "convoy/comm/parallel/gradient_reducer.h"
#include "convoy/engine/nn/module.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy::dist {

/// Options of GradientSynchronizer.
struct GradientSynchronizerOptions {
  /// Maximum bucket size in MiB.
  double bucket_mb = 10;
  /// The type in which gradients are sent: f16 or bf16, rounded to nearest even. The communicator sums in
  /// this type, and the sums are converted back. nullopt: the gradients' own type.
  std::optional<DType> grad_dtype = {};
  /// Keeps the plan by order of registration, which is the same in every run.
  bool deterministic = false;
  /// The plan().text() of an earlier run to reuse. Another plan may change the order in which libraries add.
  std::optional<std::string> plan = {};
  /// Records time marks around every all-reduce, for bucket_times().
  bool time_buckets = false;
};

/// Sums the gradients of replicas with one all-reduce per bucket, during backward.
///
/// The result is a sum, not a mean: each rank divides its loss by the global number of samples. So ranks may
/// have different numbers of samples, or none.
///
///     for (k in micro-batches) {
///       gradients.begin_step(k is the last);
///       backward(loss, {.accumulate = k > 0});
///     }
///     gradients.finish();  // on every rank once per step, also on a rank without samples
///     optimizer.step(lr);  // the same step on every rank
///
/// At first, the plan follows the order of registration. The second step measures when gradients become
/// ready; its finish() rebuilds the buckets in the measured order of rank 0, and that plan is final.
///
/// One thread uses a synchronizer. begin_step(), backward (which launches buckets) and finish() throw errors
/// of the communicator. On a GPU, which runs behind the host, a later call may be the one that throws. After
/// such an error, no further step is possible.
class GradientSynchronizer final : public GradientReducer {
 public:
  /// Allocates the buckets and makes each gradient a slice of one. Parameters that do not require a gradient
  /// are ignored. Do not move or convert the model afterwards. `comm` must outlive the synchronizer. Throws
  /// UsageError if a parameter has another type than the first one, or is not on the communicator's device.
  GradientSynchronizer(std::vector<nn::NamedParameter> parameters, Communicator& comm,
                       const GradientSynchronizerOptions& options = {});
  /// Removes the hooks. In the middle of a step, also aborts the communicator, so that peers do not wait for
  /// this rank's buckets.
  ~GradientSynchronizer() override;
  GradientSynchronizer(const GradientSynchronizer&) = delete;
  GradientSynchronizer& operator=(const GradientSynchronizer&) = delete;

  /// Prepares for one backward. With `last_micro_batch`, backward launches each bucket when it is ready. This
  /// is also the default for a step that never calls begin_step(). begin_step(false) means "accumulate
  /// without synchronizing", like PyTorch's no_sync(): backward adds to the buckets, and nothing is sent.
  void begin_step(bool last_micro_batch) override;
  /// Launches the remaining buckets and makes the compute stream wait for all sums. Work that is enqueued
  /// there afterwards may use them. Collective: every rank calls it once per step.
  ///
  /// A parameter without a gradient on this rank contributes zeros. Its gradient counts as new
  /// (Variable::has_new_grad) if any rank has one.
  ///
  /// On the CPU, blocks until the sums are complete. On a GPU, blocks in only two cases: a parameter has no
  /// gradient on this rank, or the plan changes after this step.
  void finish() override;
  void verify_sums(Communicator& comm, std::string_view when) override;
  void abandon_step() override;

  /// The names of the parameters for which backward computed no gradient.
  struct Missing {
    std::vector<std::string> here;        // on this rank
    std::vector<std::string> everywhere;  // of these, those without a gradient on any rank
  };
  /// Returns the missing gradients of the step that finished last.
  const Missing& missing() const { return missing_; }

  /// As in GradientReducer. Throws UsageError unless GradientSynchronizerOptions::time_buckets is set.
  std::vector<BucketTime> bucket_times(const Event& origin) const override;
  std::size_t gradient_bytes() const override;

  /// Returns the plan in use. finish() may replace it while bucket_plan_final() is false.
  const BucketPlan& plan() const { return plan_; }
  bool bucket_plan_final() const override { return bucket_plan_final_; }
  std::optional<std::string> plan_to_store() const override {
    return bucket_plan_final_ ? std::optional(plan_.text()) : std::nullopt;
  }
  /// Returns the number of elements at the end of the last bucket that are flags, not gradients: one per
  /// parameter.
  std::int64_t flag_count() const { return static_cast<std::int64_t>(parameters_.size()); }

 private:
  struct Bucket {
    Bucket(const BucketPlan::Bucket& plan, std::int64_t numel, const Tensor& like,
           std::optional<DType> send_dtype);
    Tensor gradients;
    Tensor send_buffer;      // the gradients in send_dtype_; undefined if they are sent as they are
    std::size_t incomplete;  // gradients that are not ready yet
    Event ready;             // on the compute stream: the gradients are written
    Event done;              // on the communicator's stream: the sums are complete
  };
  struct GradientState {
    Tensor slice;
    std::size_t bucket = 0;
    bool has_gradient = false;  // from any backward of this step
    bool is_ready = false;      // from the last backward of this step
  };

  void make_buckets();
  void on_ready(std::size_t parameter);
  void launch_next();
  void zero_missing();
  void find_missing();
  void record_ready_time(std::size_t parameter);
  void rebuild_buckets();
  Stream compute_stream() const { return buckets_.front().gradients.stream(); }
  Tensor flags() const;

  std::vector<nn::NamedParameter> parameters_;
  Communicator& comm_;
  std::optional<DType> send_dtype_;
  std::vector<std::int64_t> numels_;
  BucketLimits limits_;
  BucketPlan plan_;
  bool bucket_plan_final_;

  std::vector<Bucket> buckets_;
  std::vector<GradientState> states_;  // by parameter
  bool synchronizing_ = true;          // false: accumulate without synchronizing
  std::size_t next_bucket_ = 0;        // to launch in this step; those before it are launched
  std::int64_t steps_ = 0;
  Missing missing_;
  std::optional<BucketTimer> timer_;
  std::vector<std::size_t> ready_order_;  // parameters, in the measured step
  Event tail_;                            // on the communicator's stream: all its work of the step
  std::vector<Event> ready_marks_;        // in the order of ready_order_
};

}  // namespace convoy::dist
