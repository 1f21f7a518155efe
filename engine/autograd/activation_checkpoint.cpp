#include "convoy/engine/autograd/activation_checkpoint.h"

#include <utility>

#include "convoy/engine/autograd/variable_state.h"
#include "convoy/kernels/elementwise.h"

namespace convoy {
namespace {

/// Copies the tensors from[i] to to[i], in one launch on a GPU.
void copy_all(const std::vector<Tensor>& from, const std::vector<Tensor>& to) {
  if (from.empty()) return;
  std::vector<kernels::Assignment> copies;
  for (std::size_t i = 0; i < from.size(); ++i)
    copies.push_back({.to = to[i].view(), .from = from[i].view()});
  on(from.front().stream(), [&](auto& s) { kernels::assign(s, copies); });
}

}  // namespace

Variable checkpoint_activations(const Variable& x, const CheckpointedPart& uses,
                                std::function<Variable(const Variable& x)> part) {
  if (NoGrad::active()) return part(x);
  Tensor y;
  {
    const NoGrad no_grad;
    y = part(x).value();
  }
  std::vector<Variable> inputs = {x};
  inputs.insert(inputs.end(), uses.parameters.begin(), uses.parameters.end());
  std::vector<Variable> outer;  // without values, as the graph has them
  for (const Variable& input : inputs) outer.push_back(input.without_value());
  auto backward_of_part = [value = x.value(), requires_grad = x.requires_grad(), outer, state = uses.state,
                           part = std::move(part)](const Tensor& dy, std::span<GradSlot>) {
    std::vector<Variable> inner = outer;
    inner.front() = Variable(value, requires_grad);
    std::vector<Tensor> before;
    for (const Tensor& tensor : state) before.push_back(Tensor::empty_like(tensor));
    copy_all(state, before);
    Variable again;
    {
      const RecordingScope recording;
      again = part(inner.front());
    }
    copy_all(before, state);
    backward_part(again, dy, inner, outer);
  };
  return record("checkpoint_activations", std::move(y), std::move(inputs), std::move(backward_of_part));
}

}  // namespace convoy
