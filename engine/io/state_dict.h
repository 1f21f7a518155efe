// Export and import of the tensors of a model or an optimizer in checkpoint form: in host memory, with
// torchvision's names, and with filters as [O, I, kH, kW] instead of [O, kH, kW, I]. Not thread-safe: the
// thread of the compute stream calls these functions, and no other uses the model meanwhile. save() and load() do both with
// a file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "convoy/engine/io/safetensors.h"
#include "convoy/engine/nn/module.h"
#include "convoy/engine/optim/optimizer.h"

namespace convoy {

/// Writes the parameters and buffers of a network, in checkpoint form, to a safetensors file, which torchvision's networks
/// load as they are. Blocks until the file is on disk, which it replaces atomically. Throws OutputError if that fails.
void save(const nn::Module& network, const std::filesystem::path& file);
/// Reads all parameters and buffers of a network from such a file. Throws CheckpointError if it cannot be read or is
/// invalid, and like io::load_state_dict(); the network is then unchanged.
void load(nn::Module& network, const std::filesystem::path& file);

}  // namespace convoy

namespace convoy::io {

/// Returns the parameters, then the buffers, which share the storage of the model. Waits until the parameters
/// are complete on this rank.
std::vector<optim::NamedState> model_state(const nn::Module& model);

/// Returns the parameters, then the buffers. num_batches_tracked of batch norms is left out; PyTorch does not
/// require it. A tensor that needs neither a move nor a permutation shares the model's storage: write it to
/// the file before the next step.
std::vector<NamedTensor> state_dict(const nn::Module& model);
/// Returns the tensors of a state in the same form.
std::vector<NamedTensor> state_dict(const std::vector<optim::NamedState>& state);

/// Returns the shape that a checkpoint stores for a tensor of this kind and shape in memory.
Shape shape_in_checkpoint(const Shape& shape, nn::ParameterKind kind);
/// Returns a tensor in checkpoint form, in host memory. Shares the storage of a host tensor that is no
/// filter.
Tensor to_checkpoint(const Tensor& tensor, nn::ParameterKind kind);
/// Returns a host tensor in checkpoint form as it is in memory, with the given shape.
Tensor from_checkpoint(const Tensor& tensor, const Shape& shape, nn::ParameterKind kind);

/// Copies tensors into a model by name, converting floating-point types to the model's. Ignores
/// num_batches_tracked. If tensors are missing, unexpected or of another shape, changes nothing and throws
/// CheckpointError, which begins with `source` and lists them.
void load_state_dict(nn::Module& model, const std::vector<NamedTensor>& tensors, const std::string& source);

/// A checked import that has not been applied yet, so that several imports can be checked before the first
/// changes anything.
class PreparedImport {
 public:
  /// Matches tensors with those of the state of a model or an optimizer by name. Throws CheckpointError as
  /// load_state_dict() does.
  static PreparedImport of(const std::vector<optim::NamedState>& state,
                           const std::vector<NamedTensor>& tensors, const std::string& source);
  /// Copies the tensors. Does not refresh low-precision copies.
  void apply() const;

 private:
  struct Copy {
    Tensor from;  // in checkpoint form
    Tensor to;
    bool is_filter = false;
  };
  std::vector<Copy> copies_;
};

/// Returns the xxhash64 of the bytes of all parameters and buffers in checkpoint form and order, as 16 hex
/// digits. Equal networks have equal hashes; it is also the hash of the data section of model.safetensors.
std::string parameters_hash(const nn::Module& model);
/// Returns the hash of a model whose state_dict() is `exported`.
std::string parameters_hash(const std::vector<NamedTensor>& exported);

/// What a checkpoint stores: the tensors of a model, and of an optimizer or of one shard of it. A snapshot that was made by of() shares
/// them with the model; copy_from() makes one in host memory, which does not change while training goes on.
struct Snapshot {
  std::vector<optim::NamedState> model;  // parameters, then buffers
  optim::OptimizerState optimizer;       // without tensors if the ranks store shards
  optim::OptimizerShard shard;           // without pieces otherwise
  /// Further weights of the model, as WeightAverage::state() returns them; usually none.
  std::vector<optim::NamedState> other_weights = {};

  /// Returns a snapshot that shares the tensors of the model. Waits until the parameters are complete on this
  /// rank. The caller adds the optimizer or a shard, and other weights.
  static Snapshot of(const nn::Module& model);

  /// Copies all of `other` to host memory, and waits for the copies. Uses the memory of an earlier copy again
  /// if shapes and types are equal. The memory is not from the allocator of the model, whose peak it leaves
  /// unchanged. No other thread uses this object meanwhile. Throws DeviceError if memory is exhausted.
  void copy_from(const Snapshot& other);
  /// Copies the model's tensors back into a model with the same parameters and buffers, and refreshes the
  /// low-precision copies.
  void restore_model(nn::Module& to) const;

 private:
  std::optional<DeviceContext> memory_;  // of the copies; none before the first
};

}  // namespace convoy::io
