#include "convoy/comm/parallel/zero/sharded_gradients.h"

#include <utility>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::dist {
namespace {

constexpr std::size_t kBuffers = 2;  // backward writes one while the other is in flight

void set_all(const Tensor& tensor, double value) {
  on(tensor.stream(), [&](auto& s) { kernels::fill(s, value, tensor.view()); });
}

}  // namespace

ShardedGradients::ShardedGradients(ShardedParameters& parameters, ZeroStage stage, bool time_buckets)
    : parameters_(parameters),
      comm_(parameters.comm()),
      replicas_(parameters.replicas()),
      stage_(stage),
      states_(parameters.parameters().size()),
      flags_(Tensor::zeros({static_cast<std::int64_t>(states_.size())}, DType::f32,
                           parameters.comm().context())),
      flags_ready_(compute_stream()),
      flags_done_(compute_stream()) {
  if (time_buckets) timer_.emplace(comm_.context());
  const ShardPlan& shards = parameters_.shards();
  const DType dtype = variable(0).dtype();
  for (std::size_t b = 0; b < shards.shard_numels.size(); ++b) {
    Bucket& bucket = buckets_.emplace_back(compute_stream());
    for (const BucketPlan::Slice& slice : parameters_.plan().buckets[b].slices)
      states_[slice.parameter] = {.bucket = b, .offset = slice.offset};
    if (stage_ == ZeroStage::optimizer) {
      bucket.gradients = Tensor::zeros({shards.numel(b)}, dtype, comm_.context());
      bucket.shard = bucket.gradients.slice(shards.shard_numels[b] * comm_.rank(), {shards.shard_numels[b]});
      place_gradients(b);
    } else {
      bucket.shard = Tensor::zeros({shards.shard_numels[b]}, dtype, comm_.context());
    }
  }
  for (std::size_t i = 0; i < parameters_.piece_variables().size(); ++i) {
    const ShardPlan::Piece& piece = parameters_.local_pieces()[i];
    parameters_.piece_variables()[i].set_grad_storage(
        buckets_[piece.bucket].shard.slice(piece.offset, {piece.numel}));
  }
  // The hooks capture an index. A captured Variable would own itself through its hook and never be freed.
  for (std::size_t p = 0; p < states_.size(); ++p) {
    variable(p).on_grad_ready([this, p] { on_ready(p); }, /*on_side_stream=*/true);
    if (stage_ == ZeroStage::gradients)
      variable(p).on_grad_begin([this, p] { acquire_buffer(states_[p].bucket); });
  }
  reset_counters();
}

ShardedGradients::~ShardedGradients() {
  for (std::size_t p = 0; p < states_.size(); ++p) {
    variable(p).on_grad_ready(nullptr);
    variable(p).on_grad_begin(nullptr);
  }
  if (next_bucket_ == 0 && reduced_batches_ == 0) return;
  for (Communicator* const comm : {&comm_, replicas_})
    if (comm != nullptr) comm->abort(fmt::format("rank {} left in the middle of a step", comm->rank()));
  // The collectives in flight use memory that is freed next.
  for (const Bucket& bucket : buckets_) wait_for_abandoned(bucket.done);
  wait_for_abandoned(flags_done_);
}

void ShardedGradients::reset_counters() {
  next_bucket_ = 0;
  for (Bucket& bucket : buckets_) bucket.incomplete = 0;
  for (GradientState& state : states_) {
    state.is_ready = false;
    ++buckets_[state.bucket].incomplete;
  }
}

void ShardedGradients::place_gradients(std::size_t b) {
  for (const BucketPlan::Slice& slice : parameters_.plan().buckets[b].slices) {
    const Variable& whole = variable(slice.parameter);
    whole.set_grad_storage(buckets_[b].gradients.slice(slice.offset, whole.shape()));
  }
}

/// Gives a bucket of stage 2 a buffer, if it has none: a free one, a new one, or that of the oldest bucket in
/// flight, for which the compute stream then waits. A bucket that is still in flight from the previous
/// micro-batch keeps its own. Gradients may begin in another order than that of the plan.
void ShardedGradients::acquire_buffer(std::size_t b) {
  Bucket& bucket = buckets_[b];
  if (bucket.gradients.defined()) {
    if (std::erase(in_flight_, b) > 0) bucket.done.wait(compute_stream());
    return;
  }
  if (free_buffers_.empty() && (buffers_ < kBuffers || in_flight_.empty())) {
    // Filled with zeros, because the gaps between gradients are reduced too.
    free_buffers_.push_back(
        Tensor::zeros({parameters_.shards().max_numel()}, variable(0).dtype(), comm_.context()));
    ++buffers_;
  }
  if (free_buffers_.empty()) {
    Bucket& oldest = buckets_[in_flight_.front()];
    in_flight_.pop_front();
    oldest.done.wait(compute_stream());
    free_buffers_.push_back(std::exchange(oldest.gradients, Tensor()));
  }
  bucket.gradients = std::move(free_buffers_.back());
  free_buffers_.pop_back();
  place_gradients(b);
}

void ShardedGradients::begin_forward(std::size_t micro_batches) {
  micro_batches_ = micro_batches;
  parameters_.gather();
}

void ShardedGradients::check_errors() const {
  comm_.check_errors();
  if (replicas_ != nullptr) replicas_->check_errors();
}

void ShardedGradients::begin_step(bool last_micro_batch) {
  check_errors();
  synchronizing_ = last_micro_batch || stage_ == ZeroStage::gradients;
}

void ShardedGradients::on_ready(std::size_t parameter) {
  GradientState& state = states_[parameter];
  state.has_gradient = true;
  if (!synchronizing_) return;
  check(!state.is_ready,
        "a second gradient of {} in one step: call begin_step(false) before every backward except the last",
        parameters_.parameters()[parameter].name);
  state.is_ready = true;
  --buckets_[state.bucket].incomplete;
  // In plan order only, so that all ranks launch the same collectives in the same order.
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].incomplete == 0) launch_next();
}

void ShardedGradients::launch_next() {
  check_errors();  // ends backward early: its results could not be used
  const std::size_t b = next_bucket_;
  Bucket& bucket = buckets_[b];
  const std::int64_t shard = parameters_.shards().shard_numels[b];
  const Tensor gradients = bucket.gradients.slice(0, {parameters_.shards().numel(b)});
  if (stage_ == ZeroStage::gradients && reduced_batches_ > 0) {
    // Adds the sums of earlier micro-batches to this rank's contribution, so the result includes them.
    bucket.done.wait(compute_stream());
    const Tensor own = gradients.slice(shard * comm_.rank(), {shard});
    on(own.stream(), [&](auto& s) { kernels::add(s, own.view(), bucket.shard.view(), own.view()); });
  }
  bucket.ready.record(compute_stream());
  bucket.ready.wait(comm_.stream());
  comm_.context().wait_for_side_stream(comm_.stream());
  if (timer_) timer_->begin(b, gradients.bytes(), comm_.stream());
  comm_.set_bucket(static_cast<int>(b));
  comm_.reduce_scatter(gradients.view_without_waiting(), bucket.shard.view_without_waiting());
  if (timer_) timer_->end(b, comm_.stream());
  bucket.done.record(comm_.stream());
  // Stage 2 adds the sums of the group to those of the next micro-batch, so the replicas sum only the last ones.
  const bool is_last = stage_ == ZeroStage::optimizer || reduced_batches_ + 1 == micro_batches_;
  if (replicas_ != nullptr && is_last) reduce_replicas(bucket.shard, bucket.done, b);
  if (stage_ == ZeroStage::gradients) in_flight_.push_back(b);
  ++next_bucket_;
}

/// Replaces `sums` of this group, which are complete at `done`, by those of all groups, and records `done` again.
void ShardedGradients::reduce_replicas(const Tensor& sums, Event& done, std::optional<std::size_t> bucket) {
  done.wait(replicas_->stream());
  if (timer_ && bucket) timer_->begin(*bucket, sums.bytes(), replicas_->stream());
  if (bucket) replicas_->set_bucket(static_cast<int>(*bucket));
  replicas_->all_reduce(sums.view_without_waiting());
  if (timer_ && bucket) timer_->end(*bucket, replicas_->stream());
  done.record(replicas_->stream());
}

/// Launches the remaining buckets, with zeros for parameters that have no gradient on this rank.
void ShardedGradients::launch_rest() {
  while (next_bucket_ < buckets_.size()) {
    const std::size_t b = next_bucket_;
    if (stage_ == ZeroStage::gradients) acquire_buffer(b);
    for (const BucketPlan::Slice& slice : parameters_.plan().buckets[b].slices) {
      const GradientState& state = states_[slice.parameter];
      const bool has_gradient = stage_ == ZeroStage::optimizer ? state.has_gradient : state.is_ready;
      if (!has_gradient) set_all(buckets_[b].gradients.slice(slice.offset, {slice.numel}), 0);
    }
    launch_next();
  }
}

void ShardedGradients::end_micro_batch() {
  if (stage_ != ZeroStage::gradients) return;
  launch_rest();
  ++reduced_batches_;
  reset_counters();
}

void ShardedGradients::finish() {
  if (stage_ == ZeroStage::optimizer) launch_rest();
  set_all(flags_, 1);
  for (std::size_t p = 0; p < states_.size(); ++p)
    if (!states_[p].has_gradient) set_all(flags_.slice(static_cast<std::int64_t>(p), {1}), 0);
  flags_ready_.record(compute_stream());
  flags_ready_.wait(comm_.stream());
  comm_.all_reduce(flags_.view());
  flags_done_.record(comm_.stream());

  for (const Bucket& bucket : buckets_) bucket.done.wait(compute_stream());
  flags_done_.wait(compute_stream());
  if (replicas_ != nullptr) {
    check_errors();  // on the CPU, which has waited: replicas of a rank whose sums have failed must not step
    reduce_replicas(flags_, flags_done_);
    flags_done_.wait(compute_stream());
  }
  parameters_.wait_ready();  // also those that forward has not used: the optimizer writes them next
  check_errors();
  find_missing();
  abandon_step();  // the step is complete: resets the counters
  has_finished_ = true;
}

void ShardedGradients::abandon_step() {
  for (; !in_flight_.empty(); in_flight_.pop_front())
    free_buffers_.push_back(std::exchange(buckets_[in_flight_.front()].gradients, Tensor()));
  if (stage_ == ZeroStage::gradients)  // a bucket that was not launched
    for (Bucket& bucket : buckets_)
      if (bucket.gradients.defined()) free_buffers_.push_back(std::exchange(bucket.gradients, Tensor()));
  synchronizing_ = true;
  reduced_batches_ = 0;
  reset_counters();
  for (GradientState& state : states_) state.has_gradient = false;
}

/// Determines which local pieces have a gradient on any rank. Reading the summed flags blocks the host, so
/// they are read only if a gradient is missing on this rank.
void ShardedGradients::find_missing() {
  std::vector<float> counts;
  for (std::size_t i = 0; i < parameters_.piece_variables().size(); ++i) {
    const std::size_t p = parameters_.local_pieces()[i].parameter;
    if (!states_[p].has_gradient && counts.empty()) {
      counts = flags_.to_vector<float>();
      check_errors();  // the flags of a failed sum mean nothing
    }
    if (states_[p].has_gradient || counts[p] > 0)
      parameters_.piece_variables()[i].mark_grad_new();
    else
      parameters_.piece_variables()[i].consume_grad();
  }
  for (const nn::NamedParameter& parameter : parameters_.parameters()) parameter.variable.consume_grad();
}

void ShardedGradients::gather_parameters() {
  if (std::exchange(is_gathered_, true)) return;
  parameters_.gather();
  parameters_.wait_ready();
}

std::vector<BucketTime> ShardedGradients::bucket_times(const Event& origin) const {
  check(timer_.has_value(), "sharded gradients: bucket times were not recorded, expected time_buckets");
  return timer_->times(origin);
}

std::size_t ShardedGradients::gradient_bytes() const {
  const ShardPlan& shards = parameters_.shards();
  std::int64_t elements = static_cast<std::int64_t>(buffers_) * shards.max_numel();
  for (const std::int64_t shard : shards.shard_numels)
    elements += stage_ == ZeroStage::optimizer ? shard * shards.ranks : shard;
  return static_cast<std::size_t>(elements) * size_of(variable(0).dtype());
}

}  // namespace convoy::dist
