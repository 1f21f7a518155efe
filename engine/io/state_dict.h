// A model's or an optimizer's tensors in checkpoint form: torchvision's names, filters in [O, I, kH, kW] (in
// memory they are [O, kH, kW, I]), host memory.
#pragma once

#include <string>
#include <vector>

#include "engine/io/safetensors.h"
#include "engine/nn/module.h"
#include "engine/optim/optimizer.h"

namespace convoy {

/// Parameters, then buffers; num_batches_tracked of batch norms is left out (PyTorch supplies it). A tensor
/// that needs neither moving nor permuting shares the model's bytes: write it before the next step.
std::vector<NamedTensor> export_tensors(const Module& model);
std::vector<NamedTensor> export_state(const std::vector<NamedState>& state);

/// Copies tensors into a model by name. CheckpointError that begins with `source` and lists what is missing,
/// unexpected or of another shape; nothing is changed then. Floating-point types convert into the model's;
/// num_batches_tracked is ignored.
void import_tensors(Module& model, const std::vector<NamedTensor>& tensors, const std::string& source);

/// An import in two steps, so that several can be checked before the first one changes anything.
class PreparedImport {
 public:
  static PreparedImport of(Module& model, const std::vector<NamedTensor>& tensors, const std::string& source);
  static PreparedImport of(const std::vector<NamedState>& state, const std::vector<NamedTensor>& tensors,
                           const std::string& source);
  void apply() const;

 private:
  struct Copy {
    Tensor from;  // in checkpoint form
    Tensor to;
    bool is_filter = false;
  };
  struct Target;
  static PreparedImport match(const std::vector<Target>& targets, const std::vector<NamedTensor>& tensors,
                              const std::string& source);
  std::vector<Copy> copies_;
};

/// xxhash64 of the bytes of all parameters and buffers in checkpoint form and order, 16 hex digits: equal for
/// equal networks, and the hash of the data section of their model.safetensors.
std::string parameters_hash(const Module& model);
std::string parameters_hash(const std::vector<NamedTensor>& exported);

}  // namespace convoy
