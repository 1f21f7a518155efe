#include "convoy/comm/parallel/zero/sharded_parameters.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "convoy/engine/autograd/backward.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::dist {
namespace {

DType type_of(const std::vector<nn::NamedParameter>& parameters, const DeviceContext& device) {
  check(!parameters.empty(), "sharded parameters: no parameter requires a gradient");
  const DType dtype = parameters.front().variable.dtype();
  for (const auto& [name, variable, kind] : parameters)
    check(variable.requires_grad() && variable.dtype() == dtype && variable.device() == device.device(),
          "sharded parameters: {} is {} on {}, expected {} on {} that requires a gradient", name,
          to_string(variable.dtype()), variable.context().name(), to_string(dtype), device.name());
  return dtype;
}

/// Makes `storage` the memory of the variable's value. The low-precision copy stays as it is.
void move_value(const Variable& variable, const Tensor& storage) {
  storage.copy_from(variable.value());
  const Tensor low_precision_copy = variable.low_precision_copy();
  variable.set_value(storage);
  variable.set_low_precision_copy(low_precision_copy);
}

}  // namespace

ShardPlan ShardPlan::of(const BucketPlan& plan, int ranks, std::size_t element_bytes) {
  check(ranks >= 1, "shard plan: found {} ranks, expected 1 or more", ranks);
  check(element_bytes > 0 && kAlignment % element_bytes == 0,
        "shard plan: found elements of {} bytes, expected a divisor of {}", element_bytes, kAlignment);
  const auto step = static_cast<std::int64_t>(kAlignment / element_bytes);
  ShardPlan shards{.ranks = ranks, .shard_numels = {}, .pieces = {}};
  shards.pieces.resize(static_cast<std::size_t>(ranks));
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    const std::int64_t even = (plan.buckets[b].numel + ranks - 1) / ranks;
    const std::int64_t shard = shards.shard_numels.emplace_back((even + step - 1) / step * step);
    for (const BucketPlan::Slice& slice : plan.buckets[b].slices) {
      const std::int64_t end = slice.offset + slice.numel;
      for (std::int64_t rank = slice.offset / shard; rank * shard < end; ++rank) {
        const std::int64_t from = std::max(slice.offset, rank * shard),
                           to = std::min(end, (rank + 1) * shard);
        shards.pieces[static_cast<std::size_t>(rank)].push_back({.parameter = slice.parameter,
                                                                 .begin = from - slice.offset,
                                                                 .numel = to - from,
                                                                 .bucket = b,
                                                                 .offset = from - rank * shard});
      }
    }
  }
  const auto empty = std::find_if(shards.pieces.begin(), shards.pieces.end(),
                                  [](const auto& pieces) { return pieces.empty(); });
  check(empty == shards.pieces.end(),
        "sharding: the model is too small for {} ranks: rank {} would get no element; use fewer ranks", ranks,
        empty - shards.pieces.begin());
  return shards;
}

std::int64_t ShardPlan::max_numel() const {
  std::int64_t maximum = 0;
  for (const std::int64_t shard : shard_numels) maximum = std::max(maximum, shard * ranks);
  return maximum;
}

BucketPlan plan_of_graph(const std::vector<nn::NamedParameter>& parameters, const Variable& loss,
                         double bucket_mb) {
  const std::vector<Variable> order = backward_order(loss);
  std::vector<std::int64_t> numels;
  std::vector<double> positions;  // in backward order
  for (const nn::NamedParameter& parameter : parameters) {
    numels.push_back(parameter.variable.shape().numel());
    const auto found = std::find(order.begin(), order.end(), parameter.variable);
    positions.push_back(found == order.end() ? std::numeric_limits<double>::infinity()
                                             : static_cast<double>(found - order.begin()));
  }
  check(!parameters.empty(), "bucket plan: no parameters");
  BucketLimits limits = BucketLimits::of(bucket_mb, parameters.front().variable.dtype());
  limits.alignment = ShardPlan::kAlignment;  // small gaps, which make the shards unequal
  return BucketPlan::by_ready_times(numels, positions, limits);
}

// Gaps between slices and the padding at the end are gathered too. They are zero.
ShardedParameters::Bucket::Bucket(std::int64_t numel, const Tensor& like)
    : values(Tensor::zeros({numel}, like.dtype(), like.context())), gathered(like.stream()) {}

ShardedParameters::ShardedParameters(std::vector<nn::NamedParameter> parameters, BucketPlan plan,
                                     Communicator& comm, Communicator* replicas)
    : parameters_(std::move(parameters)),
      plan_(std::move(plan)),
      shards_(ShardPlan::of(plan_, comm.size(), size_of(type_of(parameters_, comm.context())))),
      comm_(comm),
      replicas_(replicas),
      stepped_(comm.context().stream()) {
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const Bucket& bucket = buckets_.emplace_back(shards_.numel(b), parameters_.front().variable.value());
    for (const BucketPlan::Slice& slice : plan_.buckets[b].slices) {
      const Variable& variable = parameters_[slice.parameter].variable;
      move_value(variable, bucket.values.slice(slice.offset, variable.shape()));
    }
  }
  for (const ShardPlan::Piece& piece : local_pieces()) {
    const std::int64_t shard_begin = shards_.shard_numels[piece.bucket] * comm_.rank();
    const Tensor value = buckets_[piece.bucket].values.slice(shard_begin + piece.offset, {piece.numel});
    piece_variables_.emplace_back(value, true);
  }
}

ShardedParameters::~ShardedParameters() {
  for (const nn::NamedParameter& parameter : parameters_) parameter.variable.set_ready_hook(nullptr);
}

std::vector<optim::ParameterGroup> ShardedParameters::pieces_of(
    const std::vector<optim::ParameterGroup>& groups) const {
  std::vector<optim::ParameterGroup> result;
  for (const optim::ParameterGroup& group : groups) {
    optim::ParameterGroup local = group;  // with all its settings
    local.parameters.clear();
    for (const nn::NamedParameter& parameter : group.parameters)
      for (std::size_t i = 0; i < piece_variables_.size(); ++i)
        if (parameters_[local_pieces()[i].parameter].variable == parameter.variable)
          local.parameters.push_back({parameter.name, piece_variables_[i], nn::ParameterKind::weight});
    if (!local.parameters.empty()) result.push_back(std::move(local));
  }
  return result;
}

void ShardedParameters::gather() {
  stepped_.record(compute_stream());
  stepped_.wait(comm_.stream());
  // Buckets are in backward order, so forward uses the last bucket first.
  for (std::size_t b = buckets_.size(); b-- > 0;) {
    Bucket& bucket = buckets_[b];
    const std::int64_t shard = shards_.shard_numels[b];
    comm_.set_bucket(static_cast<int>(b));
    comm_.all_gather(bucket.values.slice(shard * comm_.rank(), {shard}).view(), bucket.values.view());
    bucket.gathered.record(comm_.stream());
    bucket.is_ready = false;
    for (const BucketPlan::Slice& slice : plan_.buckets[b].slices)
      parameters_[slice.parameter].variable.set_ready_hook([this, b] { wait_ready(b); });
  }
  comm_.check_errors();
}

void ShardedParameters::wait_ready(std::size_t b) {
  Bucket& bucket = buckets_[b];
  if (std::exchange(bucket.is_ready, true)) return;
  bucket.gathered.wait(compute_stream());
  comm_.check_errors();  // on the CPU, which has waited, these include errors of this bucket
  for (const BucketPlan::Slice& slice : plan_.buckets[b].slices) {
    const Variable& variable = parameters_[slice.parameter].variable;
    variable.set_ready_hook(nullptr);
    if (const Tensor& copy = variable.low_precision_copy(); copy.defined())
      on(copy.stream(), [&](auto& s) { kernels::cast(s, variable.value().view(), copy.view()); });
  }
}

void ShardedParameters::wait_ready() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) wait_ready(b);
}

}  // namespace convoy::dist
