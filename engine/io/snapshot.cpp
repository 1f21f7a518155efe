#include "convoy/engine/io/snapshot.h"

#include <utility>

#include "convoy/engine/io/state_dict.h"
#include "convoy/kernels/base/check.h"

namespace convoy::io {
namespace {

/// Copies `from` into `to`, which gets new memory unless it has the same shape and type.
void copy_tensor(const Tensor& from, Tensor& to, const DeviceContext& memory) {
  if (!to.defined() || to.shape() != from.shape() || to.dtype() != from.dtype())
    to = Tensor::empty(from.shape(), from.dtype(), memory);
  to.copy_from(from);
}

/// Copies a list of values whose member `tensor` is a Tensor.
template <class T>
void copy_list(const std::vector<T>& from, std::vector<T>& to, Tensor T::*tensor,
               const DeviceContext& context) {
  to.resize(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    Tensor memory = std::move(to[i].*tensor);
    copy_tensor(from[i].*tensor, memory, context);
    to[i] = from[i];
    to[i].*tensor = std::move(memory);
  }
}

}  // namespace

Snapshot Snapshot::of(const nn::Module& model) {
  Snapshot snapshot;
  snapshot.model = model_state(model);
  return snapshot;
}

void Snapshot::copy_from(const Snapshot& other) {
  if (!memory_) memory_ = DeviceContext::create_cpu({.threads = 1});
  copy_list(other.model, model, &optim::NamedState::tensor, *memory_);
  copy_list(other.other_weights, other_weights, &optim::NamedState::tensor, *memory_);
  copy_list(other.optimizer.tensors, optimizer.tensors, &optim::NamedState::tensor, *memory_);
  copy_list(other.shard.pieces, shard.pieces, &optim::StatePiece::values, *memory_);
  optimizer.name = other.optimizer.name;
  optimizer.steps = other.optimizer.steps;
  shard.optimizer = other.shard.optimizer;
  shard.steps = other.shard.steps;
  shard.index = other.shard.index;
  shard.count = other.shard.count;
}

void Snapshot::restore_model(nn::Module& to) const {
  const std::vector<optim::NamedState> live = model_state(to);
  check(live.size() == model.size(), "snapshot: {} tensors, expected the {} of the model", model.size(),
        live.size());
  for (std::size_t i = 0; i < model.size(); ++i) live[i].tensor.copy_from(model[i].tensor);
  to.refresh_low_precision_copies();
}

}  // namespace convoy::io
