#include "comm/sharded_parameters.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/autograd/backward.h"
#include "kernels/elementwise.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

DType type_of(const std::vector<NamedParameter>& parameters, const Device& device) {
  check(!parameters.empty(), "sharded parameters: none wants a gradient");
  const DType dtype = parameters.front().variable.dtype();
  for (const auto& [name, variable, kind] : parameters)
    check(variable.requires_grad() && variable.dtype() == dtype && variable.device() == device,
          "sharded parameters: {} is {} on {}, expected {} on {}, with a gradient", name,
          name_of(variable.dtype()), variable.device().name(), name_of(dtype), device.name());
  return dtype;
}

/// Where values lie from now on; the half copy stays what it is.
void move_value(const Variable& variable, const Tensor& place) {
  place.copy_from(variable.value());
  const Tensor half_copy = variable.half_copy();
  variable.set_value(place);
  variable.set_half_copy(half_copy);
}

}  // namespace

BucketPlan plan_of_graph(const std::vector<NamedParameter>& parameters, const Variable& loss,
                         double bucket_mb) {
  const std::vector<Variable> order = backward_order(loss);
  std::vector<std::int64_t> numels;
  std::vector<double> turns;
  for (const NamedParameter& parameter : parameters) {
    numels.push_back(parameter.variable.shape().numel());
    const auto turn = std::find(order.begin(), order.end(), parameter.variable);
    turns.push_back(turn == order.end() ? std::numeric_limits<double>::infinity()
                                        : static_cast<double>(turn - order.begin()));
  }
  check(!parameters.empty(), "buckets: no parameters");
  BucketLimits limits = BucketLimits::of(bucket_mb, parameters.front().variable.dtype());
  limits.alignment = ShardPlan::kAlignment;  // gaps are nobody's, and make the parts unequal
  return BucketPlan::by_ready_times(numels, turns, limits);
}

// Gaps, and what fills a bucket up, are zeros; they travel along.
ShardedParameters::Bucket::Bucket(std::int64_t numel, const Tensor& like)
    : values(Tensor::zeros({numel}, like.dtype(), like.device())), gathered(like.stream()) {}

ShardedParameters::ShardedParameters(std::vector<NamedParameter> parameters, BucketPlan plan,
                                     Communicator& comm)
    : parameters_(std::move(parameters)),
      plan_(std::move(plan)),
      shards_(ShardPlan::of(plan_, comm.size(), size_of(type_of(parameters_, comm.device())))),
      comm_(comm),
      stepped_(comm.device().stream()) {
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const Bucket& bucket = buckets_.emplace_back(shards_.numel(b), parameters_.front().variable.value());
    for (const BucketPlan::Slice& slice : plan_.buckets[b].slices) {
      const Variable& variable = parameters_[slice.parameter].variable;
      move_value(variable, bucket.values.slice(slice.offset, variable.shape()));
    }
  }
  for (const ShardPlan::Piece& place : places()) {
    const std::int64_t part_begins = shards_.parts[place.bucket] * comm_.rank();
    const Tensor value = buckets_[place.bucket].values.slice(part_begins + place.offset, {place.numel});
    pieces_.emplace_back(value, true);
  }
}

ShardedParameters::~ShardedParameters() {
  for (const NamedParameter& parameter : parameters_) parameter.variable.set_arrival(nullptr);
}

std::vector<ParameterGroup> ShardedParameters::pieces_of(const std::vector<ParameterGroup>& groups) const {
  std::vector<ParameterGroup> result;
  for (const ParameterGroup& group : groups) {
    ParameterGroup mine{.parameters = {}, .lr_scale = group.lr_scale, .weight_decay = group.weight_decay};
    for (const NamedParameter& parameter : group.parameters)
      for (std::size_t i = 0; i < pieces_.size(); ++i)
        if (parameters_[places()[i].parameter].variable == parameter.variable)
          mine.parameters.push_back({parameter.name, pieces_[i], ParameterKind::weight});
    if (!mine.parameters.empty()) result.push_back(std::move(mine));
  }
  return result;
}

void ShardedParameters::gather() {
  stepped_.record(compute_stream());
  stepped_.wait(comm_.stream());
  // Backward goes through the model from its end, so forward passes meet the last bucket first.
  for (std::size_t b = buckets_.size(); b-- > 0;) {
    Bucket& bucket = buckets_[b];
    const std::int64_t part = shards_.parts[b];
    comm_.all_gather(bucket.values.slice(part * comm_.rank(), {part}).view(), bucket.values.view());
    bucket.gathered.record(comm_.stream());
    bucket.arrived = false;
    for (const BucketPlan::Slice& slice : plan_.buckets[b].slices)
      parameters_[slice.parameter].variable.set_arrival([this, b] { arrive(b); });
  }
  comm_.check_errors();
}

void ShardedParameters::arrive(std::size_t b) {
  Bucket& bucket = buckets_[b];
  if (std::exchange(bucket.arrived, true)) return;
  bucket.gathered.wait(compute_stream());
  comm_.check_errors();  // on the CPU, which has waited, of this exchange
  for (const BucketPlan::Slice& slice : plan_.buckets[b].slices) {
    const Variable& variable = parameters_[slice.parameter].variable;
    variable.set_arrival(nullptr);
    if (const Tensor& half = variable.half_copy(); half.defined())
      on(half.stream(), [&](auto& s) { cast(s, variable.value().view(), half.view()); });
  }
}

void ShardedParameters::arrive() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) arrive(b);
}

}  // namespace convoy
