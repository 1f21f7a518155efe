#include "convoy/comm/parallel/zero/sharded_optimizer.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "convoy/comm/parallel/broadcast.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

std::string state_name(std::string_view kind, std::string_view parameter) {
  return fmt::format("{}/{}", kind, parameter);
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(optim::Optimizer& optimizer, std::vector<optim::ParameterGroup> groups,
                                   const ShardedParameters& parameters, Communicator& control,
                                   Communicator* shard_control)
    : optimizer_(optimizer),
      groups_(std::move(groups)),
      parameters_(parameters),
      control_(control),
      shard_control_(shard_control != nullptr ? *shard_control : control) {
  check(optimizer.is_elementwise(),
        "sharding: optimizer {} cannot be sharded, because its step is not elementwise; expected sgd, "
        "adam, adamw or rmsprop",
        optimizer.name());
  const DType dtype = parameters.parameters().front().variable.dtype();
  check(size_of(dtype) % size_of(DType::i32) == 0, "sharding: parameters are {}, expected f32 or f64",
        to_string(dtype));
}

std::vector<std::string> ShardedOptimizer::kinds() const {
  std::vector<std::string> kinds;
  for (const optim::NamedState& state : optimizer_.state()) {
    std::string kind = state.name.substr(0, state.name.find('/'));
    if (std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) kinds.push_back(std::move(kind));
  }
  return kinds;
}

std::vector<Tensor> ShardedOptimizer::pieces_of(const std::string& kind) const {
  std::map<std::string, Tensor> by_name;
  for (const optim::NamedState& state : optimizer_.state()) by_name.emplace(state.name, state.tensor);
  std::vector<Tensor> pieces;
  for (const ShardPlan::Piece& piece : parameters_.local_pieces())
    pieces.push_back(by_name.at(state_name(kind, parameters_.parameters()[piece.parameter].name)));
  return pieces;
}

optim::OptimizerState ShardedOptimizer::make_whole(const DeviceContext& device) const {
  optim::OptimizerState whole{.name = optimizer_.name(), .steps = optimizer_.steps(), .tensors = {}};
  for (const std::string& kind : kinds())
    for (const optim::ParameterGroup& group : groups_)
      for (const nn::NamedParameter& parameter : group.parameters)
        whole.tensors.push_back(
            {state_name(kind, parameter.name),
             Tensor::zeros(parameter.variable.shape(), parameter.variable.dtype(), device), parameter.kind});
  return whole;
}

optim::OptimizerState ShardedOptimizer::describe() const { return make_whole(Device::meta()); }

optim::OptimizerShard ShardedOptimizer::shard() const {
  optim::OptimizerShard shard = shard_without_values(shard_control_.rank());
  std::vector<Tensor> values;
  for (const std::string& kind : kinds()) {
    const std::vector<Tensor> pieces = pieces_of(kind);
    values.insert(values.end(), pieces.begin(), pieces.end());
  }
  for (std::size_t i = 0; i < values.size(); ++i) shard.pieces[i].values = values[i];
  shard.own_steps = optimizer_.own_steps();
  return shard;
}

optim::StepsByName ShardedOptimizer::gathered(const optim::StepsByName& local) const {
  optim::StepsByName all;
  for (const std::string& text : all_gather_texts(control_, optim::to_text(local)))
    all.merge(optim::parse_steps(text));
  return all;
}

optim::OptimizerShard ShardedOptimizer::shard_without_values(int rank) const {
  optim::OptimizerShard shard{.optimizer = optimizer_.name(),
                              .steps = optimizer_.steps(),
                              .index = rank,
                              .count = shard_control_.size(),
                              .pieces = {}};
  for (const std::string& kind : kinds())
    for (const ShardPlan::Piece& piece : parameters_.shards().pieces[static_cast<std::size_t>(rank)]) {
      const auto& [name, variable, parameter_kind] = parameters_.parameters()[piece.parameter];
      shard.pieces.push_back(
          {state_name(kind, name), variable.shape(), parameter_kind, piece.begin, Tensor()});
    }
  return shard;
}

template <class F>
void ShardedOptimizer::for_each_gathered_bucket(const F& f) const {
  const ShardPlan& shards = parameters_.shards();
  const DType dtype = parameters_.parameters().front().variable.dtype();
  for (const std::string& kind : kinds()) {
    const std::vector<Tensor> pieces = pieces_of(kind);
    for (std::size_t b = 0; b < shards.shard_numels.size(); ++b) {
      const Tensor local = Tensor::zeros({shards.shard_numels[b]}, dtype, Device::cpu());
      for (std::size_t i = 0; i < pieces.size(); ++i)
        if (const ShardPlan::Piece& piece = parameters_.local_pieces()[i]; piece.bucket == b)
          local.slice(piece.offset, {piece.numel}).copy_from(pieces[i]);
      const Tensor bucket = Tensor::empty({shards.numel(b)}, dtype, Device::cpu());
      all_gather_and_wait(shard_control_, local.view(), bucket.view());
      f(kind, b, bucket);
    }
  }
}

optim::OptimizerShard ShardedOptimizer::shard_of_peer(int distance) const {
  const int peer = (shard_control_.rank() + distance) % shard_control_.size();
  const ShardPlan& shards = parameters_.shards();
  optim::OptimizerShard shard = shard_without_values(peer);
  std::size_t next = 0;  // pieces are in the order of kinds and buckets
  for_each_gathered_bucket([&](const std::string&, std::size_t b, const Tensor& bucket) {
    for (const ShardPlan::Piece& piece : shards.pieces[static_cast<std::size_t>(peer)])
      if (piece.bucket == b)
        shard.pieces[next++].values =
            bucket.slice(shards.shard_numels[b] * peer + piece.offset, {piece.numel}).clone();
  });
  shard.own_steps = gathered(optimizer_.own_steps());
  return shard;
}

optim::OptimizerState ShardedOptimizer::gather() const {
  const bool is_root = control_.rank() == 0;
  optim::OptimizerState whole = is_root ? make_whole(Device::cpu()) : optim::OptimizerState{};
  std::map<std::string, Tensor> tensors;
  for (const optim::NamedState& state : whole.tensors) tensors.emplace(state.name, state.tensor);
  for_each_gathered_bucket([&](const std::string& kind, std::size_t b, const Tensor& bucket) {
    if (!is_root) return;
    for (const BucketPlan::Slice& slice : parameters_.plan().buckets[b].slices) {
      const Tensor& full = tensors.at(state_name(kind, parameters_.parameters()[slice.parameter].name));
      full.copy_from(bucket.slice(slice.offset, full.shape()));
    }
  });
  optim::StepsByName own_steps = gathered(optimizer_.own_steps());
  if (is_root) whole.own_steps = std::move(own_steps);
  return whole;
}

void ShardedOptimizer::restore(std::int64_t steps, const optim::StepsByName& own_steps,
                               const std::function<void(const optim::NamedState&)>& fill) const {
  optimizer_.set_steps(std::stoll(broadcast_text(control_, std::to_string(steps))), gathered(own_steps));
  std::map<std::string, std::pair<Tensor, std::int64_t>> pieces;  // with their first elements
  for (const optim::StatePiece& piece : shard().pieces) pieces[piece.name] = {piece.values, piece.begin};
  for (const optim::NamedState& state : describe().tensors) {
    const Tensor whole = Tensor::zeros(state.tensor.shape(), state.tensor.dtype(), Device::cpu());
    fill({state.name, whole, state.kind});
    // The sum of the bits is the bits of the one rank that provides the element: those of zero are all 0.
    const auto words = static_cast<std::int64_t>(whole.bytes() / size_of(DType::i32));
    all_reduce_and_wait(control_, View{whole.view().data, {words}, DType::i32});
    if (const auto found = pieces.find(state.name); found != pieces.end()) {
      const auto& [values, begin] = found->second;
      values.copy_from(whole.slice(begin, {values.numel()}));
    }
  }
}

}  // namespace convoy::dist
