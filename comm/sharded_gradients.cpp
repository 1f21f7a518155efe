#include "comm/sharded_gradients.h"

#include <utility>

#include "kernels/elementwise.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

constexpr std::size_t kBuffers = 2;  // one is written while the other travels

void fill_with(const Tensor& tensor, double value) {
  on(tensor.stream(), [&](auto& s) { fill(s, value, tensor.view()); });
}

}  // namespace

ShardedGradients::ShardedGradients(ShardedParameters& parameters, ZeroStage stage, bool time_buckets)
    : parameters_(parameters),
      comm_(parameters.comm()),
      stage_(stage),
      states_(parameters.parameters().size()),
      flags_(
          Tensor::zeros({static_cast<std::int64_t>(states_.size())}, DType::f32, parameters.comm().device())),
      flags_ready_(compute_stream()),
      flags_done_(compute_stream()) {
  if (time_buckets) timer_.emplace(comm_.device());
  const ShardPlan& shards = parameters_.shards();
  const DType dtype = variable(0).dtype();
  for (std::size_t b = 0; b < shards.parts.size(); ++b) {
    Bucket& bucket = buckets_.emplace_back(compute_stream());
    for (const BucketPlan::Slice& slice : parameters_.plan().buckets[b].slices)
      states_[slice.parameter] = {.bucket = b, .offset = slice.offset};
    if (stage_ == ZeroStage::optimizer) {
      bucket.all = Tensor::zeros({shards.numel(b)}, dtype, comm_.device());
      bucket.mine = bucket.all.slice(shards.parts[b] * comm_.rank(), {shards.parts[b]});
      place_gradients(b);
    } else {
      bucket.mine = Tensor::zeros({shards.parts[b]}, dtype, comm_.device());
    }
  }
  for (std::size_t i = 0; i < parameters_.pieces().size(); ++i) {
    const ShardPlan::Piece& place = parameters_.places()[i];
    parameters_.pieces()[i].set_grad_storage(buckets_[place.bucket].mine.slice(place.offset, {place.numel}));
  }
  // Hooks know a number, not the variable that holds them: the two would keep each other alive.
  for (std::size_t p = 0; p < states_.size(); ++p) {
    variable(p).on_grad_ready([this, p] { on_ready(p); });
    if (stage_ == ZeroStage::gradients) variable(p).on_grad_begin([this, p] { open(states_[p].bucket); });
  }
  begin_transfers();
}

ShardedGradients::~ShardedGradients() {
  for (std::size_t p = 0; p < states_.size(); ++p) {
    variable(p).on_grad_ready(nullptr);
    variable(p).on_grad_begin(nullptr);
  }
  if (launched_ == 0 && transferred_ == 0) return;
  comm_.abort(fmt::format("rank {} left in the middle of an update", comm_.rank()));
  for (const Bucket& bucket : buckets_) bucket.done.wait();  // their memory goes now
  flags_done_.wait();
}

void ShardedGradients::begin_transfers() {
  launched_ = 0;
  for (Bucket& bucket : buckets_) bucket.incomplete = 0;
  for (State& state : states_) {
    state.is_written = false;
    ++buckets_[state.bucket].incomplete;
  }
}

void ShardedGradients::place_gradients(std::size_t b) {
  for (const BucketPlan::Slice& slice : parameters_.plan().buckets[b].slices) {
    const Variable& whole = variable(slice.parameter);
    whole.set_grad_storage(buckets_[b].all.slice(slice.offset, whole.shape()));
  }
}

/// Gives a bucket of stage 2 a buffer, the longest under way if there is no other.
void ShardedGradients::open(std::size_t b) {
  Bucket& bucket = buckets_[b];
  if (bucket.all.defined()) return;
  if (spare_.empty() && (buffers_ < kBuffers || under_way_.empty())) {
    // With zeros in it, since gaps between gradients travel along.
    spare_.push_back(Tensor::zeros({parameters_.shards().largest()}, variable(0).dtype(), comm_.device()));
    ++buffers_;
  }
  if (spare_.empty()) {
    Bucket& oldest = buckets_[under_way_.front()];
    under_way_.pop_front();
    oldest.done.wait(compute_stream());
    spare_.push_back(std::exchange(oldest.all, Tensor()));
  }
  bucket.all = std::move(spare_.back());
  spare_.pop_back();
  place_gradients(b);
}

void ShardedGradients::begin_update(bool last) {
  comm_.check_errors();
  launching_ = last || stage_ == ZeroStage::gradients;
}

void ShardedGradients::on_ready(std::size_t parameter) {
  State& state = states_[parameter];
  state.has_gradient = true;
  if (!launching_) return;
  check(
      !state.is_written,
      "a second gradient of {} in one update: begin_update(false) belongs before every backward but the last",
      parameters_.parameters()[parameter].name);
  state.is_written = true;
  --buckets_[state.bucket].incomplete;
  // In the order of the plan only, which is what makes all ranks launch the same collectives.
  while (launched_ < buckets_.size() && buckets_[launched_].incomplete == 0) launch_next();
}

void ShardedGradients::launch_next() {
  comm_.check_errors();  // rather than compute the rest of backward for nothing
  const std::size_t b = launched_;
  Bucket& bucket = buckets_[b];
  const std::int64_t part = parameters_.shards().parts[b];
  const Tensor all = bucket.all.slice(0, {parameters_.shards().numel(b)});
  if (stage_ == ZeroStage::gradients && transferred_ > 0) {
    // The sums of earlier micro-batches are one more contribution of this rank's: nothing to add afterwards.
    bucket.done.wait(compute_stream());
    const Tensor own = all.slice(part * comm_.rank(), {part});
    on(own.stream(), [&](auto& s) { add(s, own.view(), bucket.mine.view(), own.view()); });
  }
  bucket.ready.record(compute_stream());
  bucket.ready.wait(comm_.stream());
  if (timer_) timer_->begin(b, all.bytes(), comm_.stream());
  comm_.reduce_scatter(all.view(), bucket.mine.view());
  if (timer_) timer_->end(b, comm_.stream());
  bucket.done.record(comm_.stream());
  if (stage_ == ZeroStage::gradients) under_way_.push_back(b);
  ++launched_;
}

/// With zeros for what has no gradient here.
void ShardedGradients::launch_rest() {
  while (launched_ < buckets_.size()) {
    const std::size_t b = launched_;
    if (stage_ == ZeroStage::gradients) open(b);
    for (const BucketPlan::Slice& slice : parameters_.plan().buckets[b].slices) {
      const State& state = states_[slice.parameter];
      const bool is_here = stage_ == ZeroStage::optimizer ? state.has_gradient : state.is_written;
      if (!is_here) fill_with(buckets_[b].all.slice(slice.offset, {slice.numel}), 0);
    }
    launch_next();
  }
}

void ShardedGradients::end_micro_batch() {
  if (stage_ != ZeroStage::gradients) return;
  launch_rest();
  ++transferred_;
  begin_transfers();
}

void ShardedGradients::finish() {
  if (stage_ == ZeroStage::optimizer) launch_rest();
  fill_with(flags_, 1);
  for (std::size_t p = 0; p < states_.size(); ++p)
    if (!states_[p].has_gradient) fill_with(flags_.slice(static_cast<std::int64_t>(p), {1}), 0);
  flags_ready_.record(compute_stream());
  flags_ready_.wait(comm_.stream());
  comm_.all_reduce(flags_.view());
  flags_done_.record(comm_.stream());

  for (const Bucket& bucket : buckets_) bucket.done.wait(compute_stream());
  flags_done_.wait(compute_stream());
  parameters_.arrive();  // also those that no forward pass has used: they are about to be written
  comm_.check_errors();
  learn_of_missing();
  abandon_update();  // which is over: nothing of it is left to do
  has_finished_ = true;
}

void ShardedGradients::abandon_update() {
  for (; !under_way_.empty(); under_way_.pop_front())
    spare_.push_back(std::exchange(buckets_[under_way_.front()].all, Tensor()));
  if (stage_ == ZeroStage::gradients)  // one that was still being written
    for (Bucket& bucket : buckets_)
      if (bucket.all.defined()) spare_.push_back(std::exchange(bucket.all, Tensor()));
  launching_ = true;
  transferred_ = 0;
  begin_transfers();
  for (State& state : states_) state.has_gradient = false;
}

/// To read the flags the host has to wait. So they are read only where the answer is not known: with a
/// gradient here, there is one.
void ShardedGradients::learn_of_missing() {
  std::vector<float> counts;
  for (std::size_t i = 0; i < parameters_.pieces().size(); ++i) {
    const std::size_t p = parameters_.places()[i].parameter;
    if (!states_[p].has_gradient && counts.empty()) {
      counts = flags_.to_vector<float>();
      comm_.check_errors();  // a sum that failed says nothing
    }
    if (states_[p].has_gradient || counts[p] > 0)
      parameters_.pieces()[i].mark_grad_fresh();
    else
      parameters_.pieces()[i].consume_grad();
  }
  for (const NamedParameter& parameter : parameters_.parameters()) parameter.variable.consume_grad();
}

void ShardedGradients::gather_parameters() {
  if (std::exchange(is_whole_, true)) return;
  parameters_.gather();
  parameters_.arrive();
}

std::vector<BucketTime> ShardedGradients::bucket_times(const TimeMark& origin) const {
  check(timer_.has_value(), "times of buckets that were not timed");
  return timer_->times(origin);
}

std::size_t ShardedGradients::gradient_bytes() const {
  const ShardPlan& shards = parameters_.shards();
  std::int64_t elements = static_cast<std::int64_t>(buffers_) * shards.largest();
  for (const std::int64_t part : shards.parts)
    elements += stage_ == ZeroStage::optimizer ? part * shards.ranks : part;
  return static_cast<std::size_t>(elements) * size_of(variable(0).dtype());
}

}  // namespace convoy
