// Activation checkpointing (Chen et al., arXiv:1604.06174): a part of a network keeps only its input for
// backward, which computes the part again. Less memory for the time of a second forward pass.
#pragma once

#include <functional>
#include <vector>

#include "convoy/engine/autograd/variable.h"

namespace convoy {

/// What a part of a network uses and changes besides its input.
struct CheckpointedPart {
  std::vector<Variable> parameters;  // all leaves that the part uses and that require a gradient
  std::vector<Tensor> state;         // tensors that it changes, such as running statistics
};

/// Returns part(x), and lets backward() call `part` again to compute its gradients, as torch.utils.checkpoint
/// does. The operations of the first call are not recorded, so they keep no activations. Gradients and the
/// changes of CheckpointedPart::state are the same, to the last bit, as those of part(x): `part` must compute
/// the same result in both calls, and the second one restores the state. backward() completes the gradients
/// of the parameters together, in their order in `uses`. Inside NoGrad, only calls part(x).
///
/// backward() throws UsageError if `part` uses another leaf that requires a gradient.
Variable checkpoint_activations(const Variable& x, const CheckpointedPart& uses,
                                std::function<Variable(const Variable& x)> part);

}  // namespace convoy
