#include "convoy/comm/parallel/zero/sharded_optimizer.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "convoy/comm/parallel/broadcast.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy::dist {
namespace {

std::string state_name(std::string_view kind, std::string_view parameter) {
  return fmt::format("{}/{}", kind, parameter);
}

}  // namespace

ShardedOptimizer::ShardedOptimizer(optim::Optimizer& optimizer, std::vector<optim::ParameterGroup> groups,
                                   const ShardedParameters& parameters, Communicator& control)
    : optimizer_(optimizer), groups_(std::move(groups)), parameters_(parameters), control_(control) {
  check(optimizer.is_elementwise(),
        "sharding: optimizer {} cannot be sharded, because its step is not elementwise; expected sgd, "
        "adam or adamw",
        optimizer.name());
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

optim::OptimizerState ShardedOptimizer::make_whole() const {
  optim::OptimizerState whole{.name = optimizer_.name(), .steps = optimizer_.steps(), .tensors = {}};
  for (const std::string& kind : kinds())
    for (const optim::ParameterGroup& group : groups_)
      for (const nn::NamedParameter& parameter : group.parameters)
        whole.tensors.push_back(
            {state_name(kind, parameter.name),
             Tensor::zeros(parameter.variable.shape(), parameter.variable.dtype(), Device::cpu()),
             parameter.kind});
  return whole;
}

std::map<std::string, Tensor> ShardedOptimizer::by_name(const optim::OptimizerState& whole) const {
  std::map<std::string, Tensor> tensors;
  for (const optim::NamedState& state : whole.tensors) tensors.emplace(state.name, state.tensor);
  return tensors;
}

template <class F>
void ShardedOptimizer::for_each_bucket(const F& f) const {
  const ShardPlan& shards = parameters_.shards();
  const DType dtype = parameters_.parameters().front().variable.dtype();
  for (const std::string& kind : kinds()) {
    const std::vector<Tensor> pieces = pieces_of(kind);
    for (std::size_t b = 0; b < shards.shard_numels.size(); ++b)
      f(kind, b, pieces, Tensor::zeros({shards.numel(b)}, dtype, Device::cpu()));
  }
}

optim::OptimizerState ShardedOptimizer::gather() const {
  const bool is_root = control_.rank() == 0;
  optim::OptimizerState whole = is_root ? make_whole() : optim::OptimizerState{};
  const std::map<std::string, Tensor> tensors = by_name(whole);
  for_each_bucket(
      [&](const std::string& kind, std::size_t b, const std::vector<Tensor>& pieces, const Tensor& bucket) {
        const std::int64_t numel = parameters_.shards().shard_numels[b];
        const Tensor local = Tensor::zeros({numel}, bucket.dtype(), Device::cpu());
        for (std::size_t i = 0; i < pieces.size(); ++i)
          if (const ShardPlan::Piece& piece = parameters_.local_pieces()[i]; piece.bucket == b)
            local.slice(piece.offset, {piece.numel}).copy_from(pieces[i]);
        all_gather_and_wait(control_, local.view(), bucket.view());
        if (!is_root) return;
        for (const BucketPlan::Slice& slice : parameters_.plan().buckets[b].slices) {
          const Tensor& full = tensors.at(state_name(kind, parameters_.parameters()[slice.parameter].name));
          full.copy_from(bucket.slice(slice.offset, full.shape()));
        }
      });
  return whole;
}

void ShardedOptimizer::scatter(const optim::OptimizerState& whole) const {
  const bool is_root = control_.rank() == 0;
  optimizer_.set_steps(std::stoll(broadcast_text(control_, std::to_string(whole.steps))));
  const std::map<std::string, Tensor> tensors = by_name(whole);
  for_each_bucket(
      [&](const std::string& kind, std::size_t b, const std::vector<Tensor>& pieces, const Tensor& bucket) {
        if (is_root)
          for (const BucketPlan::Slice& slice : parameters_.plan().buckets[b].slices) {
            const Tensor& full = tensors.at(state_name(kind, parameters_.parameters()[slice.parameter].name));
            bucket.slice(slice.offset, full.shape()).copy_from(full);
          }
        control_.broadcast(bucket.view(), 0);
        Event sent(control_.stream());
        sent.record(control_.stream());
        sent.wait();
        control_.check_errors();
        const std::int64_t shard = parameters_.shards().shard_numels[b] * control_.rank();
        for (std::size_t i = 0; i < pieces.size(); ++i)
          if (const ShardPlan::Piece& piece = parameters_.local_pieces()[i]; piece.bucket == b)
            pieces[i].copy_from(bucket.slice(shard + piece.offset, {piece.numel}));
      });
}

}  // namespace convoy::dist
