// Sums each gradient over the ranks for the one rank that keeps its optimizer state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "comm/gradient_exchange.h"
#include "comm/sharded_parameters.h"

namespace convoy {

/// The stages of ZeRO (Rajbhandari et al., arXiv:1910.02054) that divide more than the optimizer.
enum class ZeroStage : std::uint8_t {
  optimizer = 1,  // every rank has all gradients of its own samples, and the sums of its part
  gradients = 2,  // and of the gradients no more than its part of the sums and what is under way
};

/// Buckets of gradients are reduce-scattered as soon as backward has written the whole of one and those
/// before it are on their way.
///
/// Stage 1: in the place where they are born, once an update. Stage 2: they are born in one of two buffers,
/// by turns, and summed into this rank's part after every micro-batch; backward waits where both are still
/// under way. A third buffer is made where gradients come in so different an order that two would not do.
class ShardedGradients final : public GradientExchange {
 public:
  /// parameters outlive this. time_buckets: for bucket_times().
  ShardedGradients(ShardedParameters& parameters, ZeroStage stage, bool time_buckets = false);
  /// In the middle of an update: ends the others' waiting for it.
  ~ShardedGradients() override;

  void begin_forward() override { parameters_.gather(); }
  void begin_update(bool last) override;
  bool accumulates() const override { return stage_ == ZeroStage::optimizer; }
  void end_micro_batch() override;
  /// The gradients of this rank's pieces are fresh where any rank has one of the parameter. The host waits as
  /// in GradientSynchronizer::finish().
  void finish() override;
  void end_update() override { is_whole_ = false; }
  void gather_parameters() override;
  void abandon_update() override;
  bool settled() const override { return has_finished_ || stage_ == ZeroStage::optimizer; }
  std::vector<BucketTime> bucket_times(const TimeMark& origin) const override;
  std::size_t gradient_bytes() const override;

  /// Buffers that stage 2 has come to need.
  std::size_t buffers() const { return buffers_; }

 private:
  struct Bucket {
    explicit Bucket(const Stream& stream) : ready(stream), done(stream) {}
    Tensor all;   // this rank's gradients of it; with stage 2 while it is written, or under way
    Tensor mine;  // the sums of this rank's part; with stage 1 there
    std::size_t incomplete = 0;
    StreamEvent ready, done;
  };
  struct State {
    std::size_t bucket = 0;
    std::int64_t offset = 0;    // in the bucket
    bool is_written = false;    // since the last transfer
    bool has_gradient = false;  // in this update
  };

  void begin_transfers();
  void open(std::size_t bucket);
  void place_gradients(std::size_t bucket);
  void on_ready(std::size_t parameter);
  void launch_next();
  void launch_rest();
  void learn_of_missing();
  Stream compute_stream() const { return comm_.device().stream(); }
  const Variable& variable(std::size_t parameter) const {
    return parameters_.parameters()[parameter].variable;
  }

  ShardedParameters& parameters_;
  Communicator& comm_;
  ZeroStage stage_;
  std::vector<Bucket> buckets_;
  std::vector<State> states_;  // by parameter
  Tensor flags_;               // f32, by parameter: on how many ranks it has a gradient
  StreamEvent flags_ready_, flags_done_;

  bool launching_ = true;
  std::size_t launched_ = 0;      // buckets, since the last transfers began
  std::int64_t transferred_ = 0;  // how often all buckets went in this update
  bool is_whole_ = true;          // all parameters on this rank
  bool has_finished_ = false;     // an update

  // Of stage 2:
  std::size_t buffers_ = 0;
  std::vector<Tensor> spare_;
  std::deque<std::size_t> under_way_;  // buckets that hold a buffer, the one that left first in front
  std::optional<BucketTimer> timer_;
};

}  // namespace convoy
