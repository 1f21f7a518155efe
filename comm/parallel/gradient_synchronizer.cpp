#include "convoy/comm/parallel/gradient_synchronizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "convoy/comm/parallel/broadcast.h"
#include "convoy/comm/parallel/consistency.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::dist {
namespace {

// Ready times are measured in the second step. The first one also allocates buffers and chooses algorithms.
// Captures in a graph may start after the second.
constexpr std::int64_t kMeasuredStep = 1;

void fill_with(const Tensor& tensor, double value) {
  on(tensor.stream(), [&](auto& s) { kernels::fill(s, value, tensor.view_without_waiting()); });
}

void cast_on(const Stream& stream, const Tensor& from, const Tensor& to) {
  on(stream, [&](auto& s) { kernels::cast(s, from.view_without_waiting(), to.view_without_waiting()); });
}

std::vector<std::int64_t> checked_numels(const std::vector<nn::NamedParameter>& parameters,
                                         const DeviceContext& device) {
  check(!parameters.empty(), "gradient synchronizer: no parameter requires a gradient");
  const DType dtype = parameters.front().variable.dtype();
  std::vector<std::int64_t> numels;
  for (const nn::NamedParameter& parameter : parameters) {
    const Tensor& value = parameter.variable.value();
    check(value.dtype() == dtype && value.device() == device.device(),
          "gradient synchronizer: {} is {} on {}, expected {} on {}", parameter.name,
          to_string(value.dtype()), value.context().name(), to_string(dtype), device.name());
    numels.push_back(value.numel());
  }
  return numels;
}

std::vector<nn::NamedParameter> requiring_gradients(std::vector<nn::NamedParameter> parameters) {
  std::erase_if(parameters, [](const auto& parameter) { return !parameter.variable.requires_grad(); });
  return parameters;
}

}  // namespace

// The gaps between slices are reduced with them. They are zero here and stay zero.
GradientSynchronizer::Bucket::Bucket(const BucketPlan::Bucket& plan, std::int64_t numel, const Tensor& like,
                                     std::optional<DType> send_dtype)
    : gradients(Tensor::zeros({numel}, like.dtype(), like.context())),
      send_buffer(send_dtype ? Tensor::zeros({numel}, *send_dtype, like.context()) : Tensor()),
      incomplete(plan.slices.size()),
      ready(like.stream()),
      done(like.stream()) {}

GradientSynchronizer::GradientSynchronizer(std::vector<nn::NamedParameter> parameters, Communicator& comm,
                                           const GradientSynchronizerOptions& options)
    : parameters_(requiring_gradients(std::move(parameters))),
      comm_(comm),
      send_dtype_(options.grad_dtype),
      numels_(checked_numels(parameters_, comm.context())),
      limits_(BucketLimits::of(options.bucket_mb, parameters_.front().variable.dtype())),
      plan_(options.plan ? BucketPlan::parse(*options.plan, numels_, limits_)
                         : BucketPlan::by_order(numels_, limits_)),
      bucket_plan_final_(options.deterministic || options.plan || comm.size() == 1),
      tail_(comm.stream()) {
  const DType dtype = parameters_.front().variable.dtype();
  check(!send_dtype_ || is_half(*send_dtype_) || *send_dtype_ == dtype,
        "gradient synchronizer: gradients of type {} cannot be sent as {}, expected {}, f16 or bf16",
        to_string(dtype), to_string(send_dtype_.value_or(dtype)), to_string(dtype));
  if (send_dtype_ == dtype) send_dtype_.reset();
  if (options.time_buckets) timer_.emplace(comm.context());
  make_buckets();
  // The hook captures an index. A captured Variable would own itself through its hook and never be freed.
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    parameters_[p].variable.on_grad_ready([this, p] { on_ready(p); }, /*on_side_stream=*/true);
}

GradientSynchronizer::~GradientSynchronizer() {
  for (const nn::NamedParameter& parameter : parameters_) parameter.variable.on_grad_ready(nullptr);
  if (next_bucket_ == 0) return;
  comm_.abort(fmt::format("rank {} left in the middle of a step", comm_.rank()));
  // The all-reduces in flight use memory that is freed next.
  for (std::size_t b = 0; b < next_bucket_; ++b) wait_for_abandoned(buckets_[b].done);
}

void GradientSynchronizer::make_buckets() {
  std::vector<Bucket> buckets;
  const Tensor& like = parameters_.front().variable.value();
  for (const BucketPlan::Bucket& planned : plan_.buckets) {
    const bool is_last = &planned == &plan_.buckets.back();
    buckets.emplace_back(planned, planned.numel + (is_last ? flag_count() : 0), like, send_dtype_);
  }
  states_.resize(parameters_.size());
  for (std::size_t b = 0; b < buckets.size(); ++b)
    for (const BucketPlan::Slice& slice : plan_.buckets[b].slices) {
      const Variable& variable = parameters_[slice.parameter].variable;
      const Tensor slice_tensor = buckets[b].gradients.slice(slice.offset, variable.shape());
      const bool has_new_grad = variable.has_new_grad();
      if (has_new_grad) slice_tensor.copy_from(variable.grad().to(slice_tensor.dtype()));
      variable.set_grad_storage(slice_tensor);
      if (has_new_grad) variable.mark_grad_new();
      states_[slice.parameter] = {.slice = slice_tensor, .bucket = b};
    }
  buckets_ = std::move(buckets);
}

Tensor GradientSynchronizer::flags() const {
  return buckets_.back().gradients.slice(plan_.buckets.back().numel, {flag_count()});
}

void GradientSynchronizer::begin_step(bool last_micro_batch) {
  comm_.check_errors();
  synchronizing_ = last_micro_batch;
}

void GradientSynchronizer::on_ready(std::size_t parameter) {
  GradientState& state = states_[parameter];
  const nn::NamedParameter& named = parameters_[parameter];
  check(named.variable.grad().view_without_waiting().data == state.slice.view_without_waiting().data,
        "the gradient of {} is not stored in its bucket: move or convert the model before creating its "
        "GradientSynchronizer",
        named.name);
  state.has_gradient = true;
  if (!synchronizing_) return;
  check(!state.is_ready,
        "a second gradient of {} in one step: call begin_step(false) before every backward except the last",
        named.name);
  state.is_ready = true;
  record_ready_time(parameter);
  --buckets_[state.bucket].incomplete;
  // In plan order only, so that all ranks launch the same collectives in the same order.
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].incomplete == 0) launch_next();
}

void GradientSynchronizer::launch_next() {
  comm_.check_errors();  // ends backward early: its results could not be used
  Bucket& bucket = buckets_[next_bucket_];
  if (next_bucket_ + 1 == buckets_.size()) {
    fill_with(flags(), 1);
    for (std::size_t p = 0; p < states_.size(); ++p)
      if (!states_[p].has_gradient) fill_with(flags().slice(static_cast<std::int64_t>(p), {1}), 0);
  }
  const Tensor& sent = bucket.send_buffer.defined() ? bucket.send_buffer : bucket.gradients;
  bucket.ready.record(compute_stream());
  bucket.ready.wait(comm_.stream());
  comm_.context().wait_for_side_stream(comm_.stream());
  if (bucket.send_buffer.defined())  // the stream of a CPU communicator has a thread of its own
    cast_on(comm_.context().kind() == DeviceKind::cuda ? comm_.stream() : Stream(compute_stream()),
            bucket.gradients, bucket.send_buffer);
  if (timer_) timer_->begin(next_bucket_, sent.bytes(), comm_.stream());
  comm_.set_bucket(static_cast<int>(next_bucket_));
  comm_.all_reduce(sent.view_without_waiting(), &bucket.done);
  if (timer_) timer_->end(next_bucket_, comm_.stream());
  if (timer_) bucket.done.record(comm_.stream());  // again, so that the times of a step end in it
  ++next_bucket_;
}

std::vector<BucketTime> GradientSynchronizer::bucket_times(const Event& origin) const {
  check(timer_.has_value(),
        "gradient synchronizer: bucket times were not recorded, expected the option time_buckets");
  return timer_->times(origin);
}

std::size_t GradientSynchronizer::gradient_bytes() const {
  std::size_t bytes = 0;
  for (const Bucket& bucket : buckets_)
    bytes += bucket.gradients.bytes() + (bucket.send_buffer.defined() ? bucket.send_buffer.bytes() : 0);
  return bytes;
}

void GradientSynchronizer::finish() {
  zero_missing();
  while (next_bucket_ < buckets_.size()) launch_next();
  for (Bucket& bucket : buckets_) {
    bucket.done.wait(compute_stream());
    if (bucket.send_buffer.defined()) cast_on(compute_stream(), bucket.send_buffer, bucket.gradients);
  }
  tail_.record(comm_.stream());  // what the stream does after its sums is awaited with the side stream
  comm_.context().enqueue_on_side_stream([this](const Stream& side) { tail_.wait(side); });
  comm_.check_errors();
  find_missing();
  abandon_step();  // the step is complete: resets the counters
  if (!bucket_plan_final_ && steps_ == kMeasuredStep) rebuild_buckets();
  ++steps_;
}

void GradientSynchronizer::verify_sums(Communicator& comm, std::string_view when) {
  std::vector<Tensor> sums;
  for (const Bucket& bucket : buckets_) sums.push_back(bucket.gradients);
  verify_equal(comm, sums, "the sum of bucket", when);
}

void GradientSynchronizer::abandon_step() {
  next_bucket_ = 0;
  synchronizing_ = true;
  for (std::size_t b = 0; b < buckets_.size(); ++b) buckets_[b].incomplete = plan_.buckets[b].slices.size();
  for (GradientState& state : states_) state.has_gradient = state.is_ready = false;
}

void GradientSynchronizer::zero_missing() {
  for (const GradientState& state : states_)
    if (!state.has_gradient) fill_with(state.slice, 0);
}

/// Determines which missing gradients other ranks have. The summed flags say so, but reading them blocks the
/// host. So they are read only if a gradient is missing on this rank.
void GradientSynchronizer::find_missing() {
  missing_ = {};
  std::vector<float> counts;
  for (std::size_t p = 0; p < states_.size(); ++p) {
    if (states_[p].has_gradient) continue;
    if (counts.empty()) {
      counts = flags().to(DType::f32).to_vector<float>();
      comm_.check_errors();  // the flags of a failed sum mean nothing
    }
    missing_.here.push_back(parameters_[p].name);
    if (counts[p] > 0) {
      parameters_[p].variable.mark_grad_new();
    } else {
      parameters_[p].variable.consume_grad();
      missing_.everywhere.push_back(parameters_[p].name);
    }
  }
}

void GradientSynchronizer::record_ready_time(std::size_t parameter) {
  if (bucket_plan_final_ || steps_ != kMeasuredStep) return;
  comm_.context().join_side_stream();  // which may complete the gradient after the compute stream's work
  ready_marks_.emplace_back(Event::timed(parameters_[parameter].variable.value().stream())).record();
  ready_order_.push_back(parameter);
}

void GradientSynchronizer::rebuild_buckets() {
  BucketPlan plan = plan_;
  if (!ready_order_.empty()) {
    std::vector<double> ready_ms(parameters_.size(), std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < ready_marks_.size(); ++i)
      ready_ms[ready_order_[i]] = elapsed_ms(ready_marks_[0], ready_marks_[i]);
    plan = BucketPlan::by_ready_times(numels_, ready_ms, limits_);
  }
  plan = BucketPlan::parse(broadcast_text(comm_, plan.text()), numels_, limits_);
  bucket_plan_final_ = true;
  ready_marks_.clear();
  ready_order_.clear();
  if (plan == plan_) return;
  plan_ = std::move(plan);
  make_buckets();
}

}  // namespace convoy::dist
