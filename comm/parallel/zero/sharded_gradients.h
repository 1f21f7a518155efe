// Gradient reduction for ZeRO stages 1 and 2: each rank receives the sums of its shard only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "convoy/comm/parallel/gradient_reducer.h"
#include "convoy/comm/parallel/zero/sharded_parameters.h"

namespace convoy::dist {

/// The stages of ZeRO (Rajbhandari et al., arXiv:1910.02054).
enum class ZeroStage : std::uint8_t {
  /// Shards the optimizer state. Each rank stores all gradients of its own samples.
  optimizer = 1,
  /// Also shards the gradients. Each rank stores the sums of its shard and the buckets in flight.
  gradients = 2,
};

/// Reduce-scatters each bucket of gradients during backward, as soon as the bucket is ready and all buckets
/// before it are launched. The hook, the counter and the communication stream work as in
/// gradient_synchronizer.h.
///
/// Stage 1: every bucket has its own memory, and is reduced once per step.
///
/// Stage 2: a bucket borrows one of two buffers while backward writes it and while it is in flight. After
/// every micro-batch, its sums are accumulated in this rank's shard. If no buffer is free, the compute stream
/// waits for the oldest bucket in flight. A third buffer is allocated only if the order of gradients requires
/// it.
///
/// If the shards have replicas (ShardedParameters::replicas()), an all-reduce between these follows each
/// reduce-scatter within the group, on the communication stream of the replicas. Stage 2 accumulates the
/// micro-batches within the group, and sums them over the replicas with the last one (2-hop gradient
/// synchronization of MiCS, arXiv:2205.00119). bucket_times() has the last collective of each bucket.
class ShardedGradients final : public GradientReducer {
 public:
  /// `parameters` must outlive this object. `time_buckets` enables bucket_times().
  ShardedGradients(ShardedParameters& parameters, ZeroStage stage, bool time_buckets = false);
  /// Removes the hooks. In the middle of a step, also aborts the communicators, so that peers do not wait for
  /// this rank's buckets.
  ~ShardedGradients() override;

  void begin_forward(std::size_t micro_batches) override;
  /// As in GradientReducer. Stage 2 reduces every micro-batch and ignores `last_micro_batch`.
  void begin_step(bool last_micro_batch) override;
  bool accumulates() const override { return stage_ == ZeroStage::optimizer; }
  void end_micro_batch() override;
  /// As in GradientReducer. The gradient of a local piece counts as new (Variable::has_new_grad) if any rank
  /// has a gradient of its parameter. Blocks the host as GradientSynchronizer::finish() does.
  void finish() override;
  /// Does nothing: each rank has the sums of another shard.
  void verify_sums(Communicator&, std::string_view) override {}
  void end_step() override { is_gathered_ = false; }
  void gather_parameters() override;
  void abandon_step() override;
  bool bucket_plan_final() const override { return has_finished_ || stage_ == ZeroStage::optimizer; }
  std::vector<BucketTime> bucket_times(const Event& origin) const override;
  std::size_t gradient_bytes() const override;

  /// Returns the number of buffers that stage 2 has allocated so far.
  std::size_t buffers() const { return buffers_; }

 private:
  struct Bucket {
    explicit Bucket(const Stream& stream) : ready(stream), done(stream) {}
    Tensor gradients;            // of this rank's samples; stage 2: a borrowed buffer, or undefined
    Tensor shard;                // the sums of this rank's shard; stage 1: a slice of `gradients`
    std::size_t incomplete = 0;  // gradients that are not ready yet
    Event ready;                 // on the compute stream: the gradients are written
    Event done;                  // on the stream of the last collective: the sums are complete
  };
  struct GradientState {
    std::size_t bucket = 0;
    std::int64_t offset = 0;    // in elements from the begin of the bucket
    bool is_ready = false;      // since the last reset_counters()
    bool has_gradient = false;  // from any backward of this step
  };

  void reset_counters();
  void acquire_buffer(std::size_t bucket);
  void place_gradients(std::size_t bucket);
  void on_ready(std::size_t parameter);
  void launch_next();
  void launch_rest();
  void reduce_replicas(const Tensor& sums, Event& done, std::optional<std::size_t> bucket = std::nullopt);
  void check_errors() const;
  void find_missing();
  Stream compute_stream() const { return comm_.context().stream(); }
  const Variable& variable(std::size_t parameter) const {
    return parameters_.parameters()[parameter].variable;
  }

  ShardedParameters& parameters_;
  Communicator& comm_;
  Communicator* replicas_;  // null: none
  ZeroStage stage_;
  std::vector<Bucket> buckets_;
  std::vector<GradientState> states_;  // by parameter
  Tensor flags_;                       // f32, by parameter: the number of ranks that have a gradient
  Event flags_ready_, flags_done_;

  bool synchronizing_ = true;        // false: accumulate without synchronizing
  std::size_t micro_batches_ = 1;    // of this step
  std::size_t next_bucket_ = 0;      // to launch; those before it are launched
  std::size_t reduced_batches_ = 0;  // micro-batches of this step whose buckets are all launched (stage 2)
  bool is_gathered_ = true;          // all parameters are complete on this rank
  bool has_finished_ = false;        // at least one step

  // Stage 2 only:
  std::size_t buffers_ = 0;
  std::vector<Tensor> free_buffers_;
  std::deque<std::size_t> in_flight_;  // launched buckets that hold a buffer, the oldest first

  std::optional<BucketTimer> timer_;
};

}  // namespace convoy::dist
