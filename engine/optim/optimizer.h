// Optimizers: SGD, Adam, AdamW and RMSprop over parameter groups, by the fused kernels of kernels/optimizer_step.h.
// Muon is in muon.h.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/engine/nn/module.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/optim/loss_scaler.h"
#include "convoy/kernels/optimizer_step.h"

namespace convoy::optim {

/// Parameters that share settings. The learning rate of a group is lr_scale times one of the rates given to
/// step().
struct ParameterGroup {
  std::vector<nn::NamedParameter> parameters;  // with unique names
  int rate = 0;                                // index of its learning rate; at least 0
  double lr_scale = 1;                         // at least 0
  double weight_decay = 0;                     // at least 0
};

/// Returns two groups: filters and weights with `weight_decay`, biases and norm parameters without. With
/// `decay_all`, returns one group that decays. Empty groups are left out.
std::vector<ParameterGroup> decay_groups(const std::vector<nn::NamedParameter>& parameters,
                                         double weight_decay, bool decay_all = false);

/// A tensor of optimizer state.
struct NamedState {
  std::string name;                                    // kind and parameter: "momentum/layer1.0.conv1.weight"
  Tensor tensor;                                       // shares the storage of the optimizer
  nn::ParameterKind kind = nn::ParameterKind::weight;  // determines the layout in a checkpoint
};

/// Numbers of steps of single parameters, by their names.
using StepsByName = std::map<std::string, std::int64_t>;
/// Returns the numbers as JSON text, for example {"fc.bias":3}.
std::string to_text(const StepsByName& steps);
/// Returns the numbers of a text of to_text(). Throws DataError for any other text.
StepsByName parse_steps(const std::string& text);

/// The part of an optimizer that a checkpoint stores.
struct OptimizerState {
  std::string name;                 // of the optimizer
  std::int64_t steps = 0;           // steps done, without skipped ones
  std::vector<NamedState> tensors;  // as Optimizer::state() returns them
  StepsByName own_steps = {};       // as Optimizer::own_steps() returns them
};

/// Options of one optimizer step.
struct OptimizerStepOptions {
  /// Scales all gradients so that their global norm is at most this.
  std::optional<double> clip_norm = {};
  /// The scaler whose seed backward started from; the step is skipped if a gradient overflowed. Null: the
  /// loss is not scaled.
  LossScaler* scaler = nullptr;
  /// The ranks over which the parameters are sharded (ZeRO): combines the gradient norm and the overflow
  /// check of all shards. Null: this optimizer holds all parameters.
  ProcessGroup* process_group = nullptr;
};

/// Settings of Sgd.
struct SgdSettings {
  double momentum = 0;      // from 0 to less than 1
  bool nesterov = false;    // Nesterov's momentum; needs a momentum above 0
  double weight_decay = 0;  // must be 0 with explicit groups, which have their own
};

/// An optimizer over parameter groups. Its state is allocated with it, as zeros on the device and in the type
/// of each parameter, so a checkpoint of any step is complete. Move a model to its device and precision
/// before building its optimizer. All numbers that change from step to step are in device memory, so a step
/// can be captured in a CUDA graph and replayed. Not thread-safe: the thread of the compute stream steps the
/// optimizer, and no other thread uses the parameters meanwhile.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Makes one step with the learning rate `lr` for all groups: updates every parameter that has a new
  /// gradient, and its low-precision copy, and consumes the gradients. Leaves other parameters unchanged.
  /// Releases the gradients' memory, except with a scaler. Enqueues work and does not wait for the device,
  /// except when Adam first finds that a parameter has no gradient (own_steps()).
  ///
  /// Throws UsageError if no gradient is new (there was no backward since the last step; with a process group
  /// a rank may have none), if a parameter has left the device or precision of its state, or if `lr` is
  /// negative or an option is invalid.
  void step(double lr, const OptimizerStepOptions& options = {});
  /// Makes one step with learning rates in device memory: f64 [rates()], or more of which the others are not
  /// used, on the parameters' device. A captured CUDA graph reads them at each replay. A graph that has the
  /// step without its backward needs gradients at fixed addresses (Variable::set_grad_storage()). Throws
  /// UsageError for another tensor, and CaptureError if own_steps() gets a parameter during a capture: make
  /// such a step before, and capture earlier graphs again.
  void step(const Tensor& lr, const OptimizerStepOptions& options = {});

  /// Returns the number of steps done, without skipped ones. The counter is in device memory: blocks until
  /// the device has computed it.
  std::int64_t steps() const;
  /// Returns the numbers of steps of the parameters that have made fewer, because they had no gradient in
  /// some. The bias corrections of Adam use them; other optimizers do not count them. Blocks like
  /// steps().
  StepsByName own_steps() const;
  /// Sets the number of steps done, and own_steps(), as when a run resumes. Ignores names of parameters that
  /// this optimizer does not have.
  void set_steps(std::int64_t steps, const StepsByName& own = {});
  /// Returns the tensors that a checkpoint stores, ordered by kind of state, group and parameter. To restore
  /// the state, write into the tensors and call set_steps(), with own_steps().
  virtual std::vector<NamedState> state() const;
  /// Returns "sgd", "adam", "adamw", "rmsprop" or "muon".
  virtual std::string name() const = 0;
  /// Returns whether the update of an element depends only on its own gradient and state, apart from
  /// clipping. If so, an optimizer over shards of parameters gives the same result as one over whole
  /// parameters.
  virtual bool is_elementwise() const = 0;
  /// Returns the parameters with their settings.
  const std::vector<ParameterGroup>& groups() const { return groups_; }
  /// Returns the number of learning rates that the groups use.
  std::int64_t rates() const { return lr_.numel(); }

 protected:
  /// Throws UsageError if a parameter or a name occurs twice, if there are no parameters, or if a setting of
  /// a group is negative or not finite.
  explicit Optimizer(std::vector<ParameterGroup> groups);
  /// Indices of parameters, by group.
  using Indices = std::vector<std::vector<std::size_t>>;
  /// Enqueues the step of some parameters, and counts it in scalars.steps. `indices` are those with new
  /// gradients.
  virtual void step_groups(const Indices& indices, const kernels::StepScalars& scalars) = 0;
  /// Returns whether the step of a parameter depends on the number of its earlier steps.
  virtual bool depends_on_steps() const { return false; }
  /// Returns the index of a parameter's number of steps in StepScalars::own_steps; -1 if it is that of all.
  int own_index(std::size_t group, std::size_t parameter) const { return own_[group][parameter]; }
  /// Adds zeros of the shape, type and device of every parameter in the first `groups` groups to state(), named
  /// "<kind>/<parameter>". Returns the tensors, indexed by group and parameter.
  std::vector<std::vector<Tensor>> add_state(const std::string& kind, std::size_t groups);
  /// Returns the view of a parameter's state. Throws UsageError if the parameter has moved to another device
  /// or type since.
  static View state_view(const nn::NamedParameter& parameter, const Tensor& state);
  /// Returns the view of a parameter's low-precision copy, which is empty if there is none.
  static View low_precision_copy_of(const nn::NamedParameter& parameter);
  /// Enqueues the step of SGD for the groups from `first` on, and counts it. Reads `momentum`, by group and
  /// parameter, if that of the settings is above 0. Throws UsageError like state_view().
  void step_by_sgd(std::size_t first, const Indices& indices,
                   const std::vector<std::vector<Tensor>>& momentum, const SgdSettings& settings,
                   const kernels::StepScalars& scalars) const;

  /// Returns the stream and the memory of the parameters.
  const DeviceContext& context() const;

  std::vector<ParameterGroup> groups_;  // with at least one parameter

 private:
  /// Sets a parameter's own number of steps. Allocates it at first.
  void set_own_steps(std::size_t group, std::size_t parameter, std::int64_t steps);
  /// Gives parameters without new gradients their own numbers of steps, unless they have them. Blocks if
  /// there are such parameters.
  void count_missing();
  /// Returns the new gradients. Throws UsageError if there are none, unless `may_be_empty`.
  std::vector<ConstView> new_gradients(bool may_be_empty) const;
  /// Returns the norm of the gradients, f64 [1] on the parameters' device; over all ranks of `group` if
  /// given.
  Tensor norm_of(const std::vector<ConstView>& gradients, ProcessGroup* group) const;
  /// Returns the factor for every gradient, f64 [1], that applies clipping and undoes the loss scale.
  Tensor gradient_coefficient(const std::vector<ConstView>& gradients,
                              const OptimizerStepOptions& options) const;

  std::map<std::string, std::vector<std::vector<Tensor>>> states_;  // state(), by kind, group and parameter
  Tensor steps_;                                                    // f64 [1]
  Tensor own_steps_;                   // f64 [parameters]; undefined before the first one is set
  std::vector<std::vector<int>> own_;  // own_index(), by group and parameter
  int owners_ = 0;                     // parameters with own_index() >= 0
  Tensor lr_;                          // f64 [rates()]: the rate of step(double), for all groups
};

/// Returns the optimizer's state. The tensors share the optimizer's storage. Blocks until the device has
/// computed the number of steps.
OptimizerState state_of(const Optimizer& optimizer);

/// Stochastic gradient descent with momentum, as torch.optim.SGD.
class Sgd : public Optimizer {
 public:
  /// Makes one group in which all parameters decay (PyTorch's default). Throws UsageError for invalid
  /// settings, and like the constructor of Optimizer.
  Sgd(const std::vector<nn::NamedParameter>& parameters, SgdSettings settings);
  /// Makes an optimizer of explicit groups. Throws UsageError like the other constructor.
  Sgd(std::vector<ParameterGroup> groups, SgdSettings settings);
  std::string name() const override { return "sgd"; }
  bool is_elementwise() const override { return true; }

 protected:
  void step_groups(const Indices& indices, const kernels::StepScalars& scalars) override;

 private:
  SgdSettings settings_;
  std::vector<std::vector<Tensor>> momentum_;  // by group and parameter; empty if momentum = 0
};

/// Settings of Adam, AdamW and RMSprop.
struct AdamSettings {
  double beta1 = 0.9;       // decay of the first moment or momentum of RMSprop, from 0 to less than 1
  double beta2 = 0.999;     // decay of the second moment, from 0 to less than 1
  double epsilon = 1e-8;    // added to the square root of the second moment; above 0
  double weight_decay = 0;  // must be 0 with explicit groups, which have their own
  bool decoupled = false;   // true: AdamW, whose weight decay is not part of the gradient
  bool rms_prop = false;    // true: RMSprop, whose alpha is beta2; `decoupled` must be false
};

/// Adam, AdamW with decoupled weight decay, and RMSprop, as torch.optim's. The bias corrections of a parameter depend
/// on the number of its own steps; RMSprop has none.
class Adam : public Optimizer {
 public:
  /// Makes one group in which all parameters decay (PyTorch's default). Throws UsageError for invalid
  /// settings, and like the constructor of Optimizer.
  Adam(const std::vector<nn::NamedParameter>& parameters, AdamSettings settings);
  /// Makes an optimizer of explicit groups. Throws UsageError like the other constructor.
  Adam(std::vector<ParameterGroup> groups, AdamSettings settings);
  std::string name() const override {
    return settings_.rms_prop ? "rmsprop" : settings_.decoupled ? "adamw" : "adam";
  }
  bool is_elementwise() const override { return true; }

 protected:
  void step_groups(const Indices& indices, const kernels::StepScalars& scalars) override;
  bool depends_on_steps() const override { return !settings_.rms_prop; }

 private:
  AdamSettings settings_;
  std::vector<std::vector<Tensor>> first_, second_;  // moments, by group and parameter
};

// ---- The state that one rank has if the ranks share it (ZeRO) ----

/// Consecutive elements of one tensor of an optimizer's state.
struct StatePiece {
  std::string name;                                    // of the whole tensor, as in NamedState
  Shape shape;                                         // of the whole tensor in memory
  nn::ParameterKind kind = nn::ParameterKind::weight;  // of the parameter
  std::int64_t begin = 0;                              // the first element, in row-major order of `shape`
  Tensor values;                                       // [n]
};

/// One shard of an optimizer's state. The pieces of all shards together are the whole state, each element
/// once.
struct OptimizerShard {
  std::string optimizer;           // name of the optimizer
  std::int64_t steps = 0;          // OptimizerState::steps
  int index = 0;                   // number of this shard, from 0
  int count = 1;                   // number of shards
  std::vector<StatePiece> pieces;  // at most one of each tensor
  StepsByName own_steps = {};      // as in OptimizerState, at least those of its parameters

  /// Copies the elements of this shard into the tensor `name`, which has the shape of the whole tensor. Does
  /// nothing if this shard has no piece of it.
  void copy_to(const std::string& name, const Tensor& whole) const {
    for (const StatePiece& piece : pieces)
      if (piece.name == name) whole.slice(piece.begin, {piece.values.numel()}).copy_from(piece.values);
  }
};

}  // namespace convoy::optim
