#include "comm/gradient_synchronizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "comm/broadcast.h"
#include "kernels/elementwise.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

// The first update also makes buffers and chooses algorithms; recording in a graph may start after the
// second.
constexpr std::int64_t kMeasuredUpdate = 1;

void fill_with(const Tensor& tensor, double value) {
  on(tensor.stream(), [&](auto& s) { fill(s, value, tensor.view()); });
}

void cast_to(const Tensor& from, const Tensor& to) {
  on(from.stream(), [&](auto& s) { cast(s, from.view(), to.view()); });
}

std::vector<std::int64_t> sizes_of(const std::vector<NamedParameter>& parameters, const Device& device) {
  check(!parameters.empty(), "gradient synchronizer: no parameter wants a gradient");
  const DType dtype = parameters.front().variable.dtype();
  std::vector<std::int64_t> numels;
  for (const NamedParameter& parameter : parameters) {
    const Tensor& value = parameter.variable.value();
    check(value.dtype() == dtype && value.device() == device,
          "gradient synchronizer: {} is {} on {}, expected {} on {}", parameter.name, name_of(value.dtype()),
          value.device().name(), name_of(dtype), device.name());
    numels.push_back(value.numel());
  }
  return numels;
}

std::vector<NamedParameter> wanting_gradients(std::vector<NamedParameter> parameters) {
  std::erase_if(parameters, [](const auto& parameter) { return !parameter.variable.requires_grad(); });
  return parameters;
}

}  // namespace

// The gaps between slices travel with them, and stay the zeros that they are here.
GradientSynchronizer::Bucket::Bucket(const BucketPlan::Bucket& plan, std::int64_t numel, const Tensor& like,
                                     std::optional<DType> sent_dtype)
    : gradients(Tensor::zeros({numel}, like.dtype(), like.device())),
      sent(sent_dtype ? Tensor::zeros({numel}, *sent_dtype, like.device()) : Tensor()),
      incomplete(plan.slices.size()),
      ready(like.stream()),
      done(like.stream()) {}

GradientSynchronizer::GradientSynchronizer(std::vector<NamedParameter> parameters, Communicator& comm,
                                           const GradientSynchronizerOptions& options)
    : parameters_(wanting_gradients(std::move(parameters))),
      comm_(comm),
      sent_dtype_(options.grad_dtype),
      numels_(sizes_of(parameters_, comm.device())),
      limits_(BucketLimits::of(options.bucket_mb, parameters_.front().variable.dtype())),
      plan_(options.plan ? BucketPlan::parse(*options.plan, numels_, limits_)
                         : BucketPlan::by_order(numels_, limits_)),
      settled_(options.deterministic || options.plan || comm.size() == 1) {
  const DType dtype = parameters_.front().variable.dtype();
  check(!sent_dtype_ || is_half(*sent_dtype_) || *sent_dtype_ == dtype,
        "gradients of {} sent as {}, expected {}, f16 or bf16", name_of(dtype),
        name_of(sent_dtype_.value_or(dtype)), name_of(dtype));
  if (sent_dtype_ == dtype) sent_dtype_.reset();
  if (options.time_buckets) timer_.emplace(comm.device());
  make_buckets();
  // Hooks know a number, not the variable that holds them: the two would keep each other alive.
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    parameters_[p].variable.on_grad_ready([this, p] { on_ready(p); });
}

GradientSynchronizer::~GradientSynchronizer() {
  for (const NamedParameter& parameter : parameters_) parameter.variable.on_grad_ready(nullptr);
  if (launched_ == 0) return;
  comm_.abort(fmt::format("rank {} left in the middle of an update", comm_.rank()));
  for (std::size_t b = 0; b < launched_; ++b) buckets_[b].done.wait();  // their memory goes now
}

void GradientSynchronizer::make_buckets() {
  std::vector<Bucket> buckets;
  const Tensor& like = parameters_.front().variable.value();
  for (const BucketPlan::Bucket& planned : plan_.buckets) {
    const bool is_last = &planned == &plan_.buckets.back();
    buckets.emplace_back(planned, planned.numel + (is_last ? flag_count() : 0), like, sent_dtype_);
  }
  states_.resize(parameters_.size());
  for (std::size_t b = 0; b < buckets.size(); ++b)
    for (const BucketPlan::Slice& slice : plan_.buckets[b].slices) {
      const Variable& variable = parameters_[slice.parameter].variable;
      const Tensor place = buckets[b].gradients.slice(slice.offset, variable.shape());
      const bool is_fresh = variable.has_fresh_grad();
      if (is_fresh) place.copy_from(variable.grad());
      variable.set_grad_storage(place);
      if (is_fresh) variable.mark_grad_fresh();
      states_[slice.parameter] = {.slice = place, .bucket = b};
    }
  buckets_ = std::move(buckets);
}

Tensor GradientSynchronizer::flags() const {
  return buckets_.back().gradients.slice(plan_.buckets.back().numel, {flag_count()});
}

void GradientSynchronizer::begin_update(bool launch) {
  comm_.check_errors();
  launching_ = launch;
}

void GradientSynchronizer::on_ready(std::size_t parameter) {
  State& state = states_[parameter];
  const NamedParameter& named = parameters_[parameter];
  check(named.variable.grad().view().data == state.slice.view().data,
        "the gradient of {} has left its bucket: move or convert a model before its synchronizer is made",
        named.name);
  state.has_gradient = true;
  if (!launching_) return;
  check(
      !state.is_final,
      "a second gradient of {} in one update: begin_update(false) belongs before every backward but the last",
      named.name);
  state.is_final = true;
  measure(parameter);
  --buckets_[state.bucket].incomplete;
  // In the order of the plan only, which is what makes all ranks launch the same collectives.
  while (launched_ < buckets_.size() && buckets_[launched_].incomplete == 0) launch_next();
}

void GradientSynchronizer::launch_next() {
  comm_.check_errors();  // rather than compute the rest of backward for nothing
  Bucket& bucket = buckets_[launched_];
  if (launched_ + 1 == buckets_.size()) {
    fill_with(flags(), 1);
    for (std::size_t p = 0; p < states_.size(); ++p)
      if (!states_[p].has_gradient) fill_with(flags().slice(static_cast<std::int64_t>(p), {1}), 0);
  }
  const Tensor& travelling = bucket.sent.defined() ? bucket.sent : bucket.gradients;
  if (bucket.sent.defined()) cast_to(bucket.gradients, bucket.sent);
  bucket.ready.record(compute_stream());
  bucket.ready.wait(comm_.stream());
  if (timer_) timer_->begin(launched_, travelling.bytes(), comm_.stream());
  comm_.all_reduce(travelling.view());
  if (timer_) timer_->end(launched_, comm_.stream());
  bucket.done.record(comm_.stream());
  ++launched_;
}

std::vector<BucketTime> GradientSynchronizer::bucket_times(const TimeMark& origin) const {
  check(timer_.has_value(), "times of buckets from a synchronizer without time_buckets");
  return timer_->times(origin);
}

std::size_t GradientSynchronizer::gradient_bytes() const {
  std::size_t bytes = 0;
  for (const Bucket& bucket : buckets_)
    bytes += bucket.gradients.bytes() + (bucket.sent.defined() ? bucket.sent.bytes() : 0);
  return bytes;
}

void GradientSynchronizer::finish() {
  zero_missing();
  while (launched_ < buckets_.size()) launch_next();
  for (Bucket& bucket : buckets_) {
    bucket.done.wait(compute_stream());
    if (bucket.sent.defined()) cast_to(bucket.sent, bucket.gradients);
  }
  comm_.check_errors();
  learn_of_missing();
  abandon_update();  // which is over: nothing of it is left to do
  if (!settled_ && updates_ == kMeasuredUpdate) plan_anew();
  ++updates_;
}

void GradientSynchronizer::abandon_update() {
  launched_ = 0;
  launching_ = true;
  for (std::size_t b = 0; b < buckets_.size(); ++b) buckets_[b].incomplete = plan_.buckets[b].slices.size();
  for (State& state : states_) state.has_gradient = state.is_final = false;
}

void GradientSynchronizer::zero_missing() {
  for (const State& state : states_)
    if (!state.has_gradient) fill_with(state.slice, 0);
}

/// Whether another rank had a gradient is in the flags, but to read them the host has to wait. So they are
/// read only where the answer is not known: with a gradient here, there is one.
void GradientSynchronizer::learn_of_missing() {
  missing_ = {};
  std::vector<float> counts;
  for (std::size_t p = 0; p < states_.size(); ++p) {
    if (states_[p].has_gradient) continue;
    if (counts.empty()) {
      counts = flags().to(DType::f32).to_vector<float>();
      comm_.check_errors();  // a sum that failed says nothing
    }
    missing_.here.push_back(parameters_[p].name);
    if (counts[p] > 0) {
      parameters_[p].variable.mark_grad_fresh();
    } else {
      parameters_[p].variable.consume_grad();
      missing_.everywhere.push_back(parameters_[p].name);
    }
  }
}

void GradientSynchronizer::measure(std::size_t parameter) {
  if (settled_ || updates_ != kMeasuredUpdate) return;
  marks_.emplace_back(parameters_[parameter].variable.device()).record();
  measured_.push_back(parameter);
}

void GradientSynchronizer::plan_anew() {
  BucketPlan plan = plan_;
  if (!measured_.empty()) {
    std::vector<double> ready_ms(parameters_.size(), std::numeric_limits<double>::infinity());
    for (std::size_t i = 0; i < marks_.size(); ++i) ready_ms[measured_[i]] = elapsed_ms(marks_[0], marks_[i]);
    plan = BucketPlan::by_ready_times(numels_, ready_ms, limits_);
  }
  plan = BucketPlan::parse(broadcast_text(comm_, plan.text()), numels_, limits_);
  settled_ = true;
  marks_.clear();
  measured_.clear();
  if (plan == plan_) return;
  plan_ = std::move(plan);
  make_buckets();
}

}  // namespace convoy
