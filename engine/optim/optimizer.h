// Optimizers: parameter groups over the fused steps of kernels/optimizer_step.h.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/nn/module.h"

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

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// Updates every parameter whose gradient is fresh, and consumes the gradients. lr: this step's rate.
  /// clip_norm: all gradients are scaled so that their common norm is at most this.
  void step(double lr, std::optional<double> clip_norm = {});

  /// The common norm of the fresh gradients (before any clipping); waits for the device.
  double gradient_norm() const;

  /// Number of steps taken.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Everything that a checkpoint has to keep, made on demand and stable in order; restored by writing into it.
  virtual std::vector<NamedState> state() const = 0;
  virtual std::string name() const = 0;  // "sgd", "adam", "adamw"
  const std::vector<ParameterGroup>& groups() const { return groups_; }

 protected:
  /// Throws UsageError where two groups hold the same parameter.
  explicit Optimizer(std::vector<ParameterGroup> groups);
  /// Updates the parameters of one group; `fresh` are indices into it.
  virtual void step_group(std::size_t group, std::span<const std::size_t> fresh, double lr,
                          ConstView grad_scale) = 0;

  std::vector<ParameterGroup> groups_;
  std::int64_t steps_ = 0;
};

struct SgdSettings {
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
};

class Sgd final : public Optimizer {
 public:
  Sgd(const std::vector<NamedParameter>& parameters, SgdSettings settings);
  Sgd(std::vector<ParameterGroup> groups, SgdSettings settings);
  std::vector<NamedState> state() const override;
  std::string name() const override { return "sgd"; }

 private:
  void step_group(std::size_t group, std::span<const std::size_t> fresh, double lr, ConstView grad_scale) override;
  SgdSettings settings_;
  std::vector<std::vector<Tensor>> momentum_;  // by group and parameter; empty where momentum = 0
};

struct AdamSettings {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  // AdamW
};

class Adam final : public Optimizer {
 public:
  Adam(const std::vector<NamedParameter>& parameters, AdamSettings settings);
  Adam(std::vector<ParameterGroup> groups, AdamSettings settings);
  std::vector<NamedState> state() const override;
  std::string name() const override { return settings_.decoupled ? "adamw" : "adam"; }

 private:
  void step_group(std::size_t group, std::span<const std::size_t> fresh, double lr, ConstView grad_scale) override;
  AdamSettings settings_;
  std::vector<std::vector<Tensor>> first_, second_;
};

}  // namespace convoy
