// Optimizers: parameter groups over the fused steps of kernels/optimizer_step.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/nn/module.h"
#include "engine/optim/loss_scaler.h"
#include "engine/tensor/part_exchange.h"
#include "kernels/optimizer_step.h"

namespace convoy {

/// Parameters that share settings. Rates multiply the rate given to step().
struct ParameterGroup {
  std::vector<NamedParameter> parameters;
  double lr_scale = 1;
  double weight_decay = 0;
};

/// Two groups: filters and weights decay, biases and norms do not. With decay_all, one group.
std::vector<ParameterGroup> decay_groups(const std::vector<NamedParameter>& parameters, double weight_decay,
                                         bool decay_all = false);

/// A tensor of optimizer state under the name of its parameter: "momentum/layer1.0.conv1.weight".
struct NamedState {
  std::string name;
  Tensor tensor;
  ParameterKind kind = ParameterKind::weight;  // its layout in a checkpoint
};

/// What a checkpoint keeps of an optimizer.
struct OptimizerState {
  std::string name;  // of the optimizer
  std::int64_t steps = 0;
  std::vector<NamedState> tensors;
};

struct UpdateOptions {
  std::optional<double> clip_norm = {};  // all gradients are scaled so that their common norm is at most this
  LossScaler* scaler = nullptr;          // whose seed backward started from; it may skip the update
  /// Of an optimizer that has a part of the parameters: how it comes to the norm of all gradients, and knows
  /// of an overflow in any. Null: it has them all.
  PartExchange* others = nullptr;
};

/// State is made with the optimizer, as zeros beside each parameter, so a checkpoint of any step is complete;
/// a model therefore moves to its device and precision before its optimizer is built. Everything that changes
/// from step to step lies in the device's memory, so that a step can be recorded in a graph and replayed.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter whose gradient is fresh, and its half copy, and consumes the gradients; the
  /// others stay as they are. lr: this step's rate. Never waits for the device. UsageError where no gradient
  /// is fresh (there was no backward since the last step), or where a parameter has left the device or
  /// precision of its state.
  void step(double lr, const UpdateOptions& options = {});
  /// The rate is f64 [1], on the parameters' device: what a graph reads anew at each replay.
  void step(const Tensor& lr, const UpdateOptions& options = {});

  /// The common norm of the fresh gradients (before any clipping); waits for the device.
  double gradient_norm() const;

  /// Number of updates done, skipped ones not counted; Adam's bias corrections count these, for all
  /// parameters alike. They are counted on the device: waits for it.
  std::int64_t steps() const;
  void set_steps(std::int64_t steps);
  /// Everything that a checkpoint has to keep but the number of steps, by kind of state, then group, then
  /// parameter; restored by writing into the tensors.
  virtual std::vector<NamedState> state() const = 0;
  virtual std::string name() const = 0;  // "sgd", "adam", "adamw"
  /// Whether each element's update depends on its own gradient and state alone (but for clipping): then an
  /// optimizer of parts of parameters does what one of whole parameters does.
  virtual bool is_elementwise() const = 0;
  const std::vector<ParameterGroup>& groups() const { return groups_; }

 protected:
  /// Throws UsageError where a parameter or a name occurs twice, or where there is none.
  explicit Optimizer(std::vector<ParameterGroup> groups);
  /// Updates the parameters of one group; `fresh` are indices into it.
  virtual void step_group(std::size_t group, std::span<const std::size_t> fresh,
                          const StepScalars& scalars) = 0;
  /// Zeros like every parameter, by group and parameter.
  std::vector<std::vector<Tensor>> make_state() const;
  /// The view of a parameter's state; UsageError where the parameter has moved since.
  static View state_view(const NamedParameter& parameter, const Tensor& state);
  /// Appends "<kind>/<parameter>" for every parameter.
  void append_state(std::vector<NamedState>& all, std::string_view kind,
                    const std::vector<std::vector<Tensor>>& state) const;

  std::vector<ParameterGroup> groups_;

 private:
  std::vector<ConstView> fresh_gradients(bool may_be_none) const;
  /// A one-element f64 tensor on the parameters' device; the norm of the others' gradients, too, where there
  /// are others.
  Tensor norm_of(const std::vector<ConstView>& gradients, PartExchange* others = nullptr) const;
  /// What every gradient is multiplied by, f64 [1]: for clipping and the loss scale.
  Tensor gradient_coefficient(const std::vector<ConstView>& gradients, const UpdateOptions& options) const;
  const Device& device() const;

  Tensor steps_;  // f64 [1]
  Tensor lr_;     // f64 [1]: a rate that the host gave
};

/// Of tensors that are the optimizer's own.
OptimizerState state_of(const Optimizer& optimizer);

struct SgdSettings {
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  // with explicit groups: theirs, and this must be 0
};

class Sgd final : public Optimizer {
 public:
  /// One group, in which everything decays alike (PyTorch's default).
  Sgd(const std::vector<NamedParameter>& parameters, SgdSettings settings);
  Sgd(std::vector<ParameterGroup> groups, SgdSettings settings);
  std::vector<NamedState> state() const override;
  std::string name() const override { return "sgd"; }
  bool is_elementwise() const override { return true; }

 private:
  void step_group(std::size_t group, std::span<const std::size_t> fresh, const StepScalars& scalars) override;
  SgdSettings settings_;
  std::vector<std::vector<Tensor>> momentum_;  // by group and parameter; empty where momentum = 0
};

struct AdamSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  // with explicit groups: theirs, and this must be 0
  bool decoupled = false;   // AdamW
};

class Adam final : public Optimizer {
 public:
  Adam(const std::vector<NamedParameter>& parameters, AdamSettings settings);
  Adam(std::vector<ParameterGroup> groups, AdamSettings settings);
  std::vector<NamedState> state() const override;
  std::string name() const override { return settings_.decoupled ? "adamw" : "adam"; }
  bool is_elementwise() const override { return true; }

 private:
  void step_group(std::size_t group, std::span<const std::size_t> fresh, const StepScalars& scalars) override;
  AdamSettings settings_;
  std::vector<std::vector<Tensor>> first_, second_;
};

/// What a command line may say of an optimizer; weight decay is the groups'.
struct OptimizerFlags {
  std::optional<double> momentum;  // sgd; 0.9 where not given
  bool nesterov = false;           // sgd
};

/// By the name of a flag: sgd, adam, adamw. UsageError for any other, and for a flag that the optimizer has
/// no use for.
std::unique_ptr<Optimizer> make_optimizer(std::string_view name, std::vector<ParameterGroup> groups,
                                          const OptimizerFlags& flags = {});

}  // namespace convoy
