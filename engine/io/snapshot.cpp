#include "convoy/engine/io/snapshot.h"

#include <utility>

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
  for (const nn::NamedParameter& parameter : model.parameters()) {
    parameter.variable.wait_ready();
    snapshot.model.push_back({parameter.name, parameter.variable.value(), parameter.kind});
  }
  for (const nn::NamedBuffer& buffer : model.buffers())
    snapshot.model.push_back({buffer.name, buffer.tensor, buffer.kind});
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
  const Snapshot live = Snapshot::of(to);
  check(live.model.size() == model.size(), "snapshot: {} tensors, expected the {} of the model", model.size(),
        live.model.size());
  for (std::size_t i = 0; i < model.size(); ++i) live.model[i].tensor.copy_from(model[i].tensor);
  to.refresh_low_precision_copies();
}

}  // namespace convoy::io
