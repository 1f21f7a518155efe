#include <algorithm>
#include <iterator>

#include "convoy/engine/autograd/activation_checkpoint.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/check.h"

namespace convoy::nn {
namespace {

/// Returns the activation as part of an epilogue; `none` if it can only be a layer of its own.
NormActivation as_epilogue(ActivationKind kind) {
  if (kind == ActivationKind::relu) return NormActivation::relu;
  return kind == ActivationKind::gelu ? NormActivation::gelu : NormActivation::none;
}

/// Returns the last name of the module's path.
std::string name_in_parent(const Module& module) {
  return module.path().substr(module.path().rfind('.') + 1);
}

}  // namespace

LayerChain::LayerChain(const std::vector<NamedModule>& layers) {
  for (const auto& [name, layer] : layers) {
    const auto* const activation = dynamic_cast<const Activation*>(layer.get());
    const Epilogue epilogue{.activation =
                                activation ? as_epilogue(activation->kind()) : NormActivation::none};
    if (epilogue.fusion() != Fusion::none && epilogue.fusion() <= fusion_) {
      steps_.back().activation = layer.get();
      steps_.back().epilogue = epilogue.activation;
      fusion_ = Fusion::none;
    } else {
      steps_.push_back({.layer = layer.get()});
      fusion_ = layer->fusion();
    }
  }
  for (std::size_t i = 0; i + 1 < steps_.size(); ++i) {
    const auto* const conv = dynamic_cast<const Conv2d*>(steps_[i].layer);
    const auto* const norm = dynamic_cast<const BatchNorm2d*>(steps_[i + 1].layer);
    if (conv == nullptr || norm == nullptr || conv->options().bias || steps_[i].activation != nullptr)
      continue;
    steps_[i].conv = conv;
    steps_[i].norm = norm;
  }
}

bool LayerChain::is_fusible(std::size_t step, const ForwardContext& context) const {
  if (step >= steps_.size() || steps_[step].conv == nullptr || !context.training) return false;
  const Module* const activation = steps_[step + 1].activation;
  return !steps_[step].norm->is_synchronized() && !steps_[step].norm->is_frozen() &&
         !steps_[step].conv->has_forward_hooks() && !steps_[step].norm->has_forward_hooks() &&
         (activation == nullptr || !activation->has_forward_hooks());
}

bool LayerChain::is_fused(std::size_t step, const Variable& x, const Shape& input, bool has_norm,
                          const ForwardContext& context) const {
  return is_fusible(step, context) &&
         (context.fuse_batch_norms || steps_[step].conv->fuses_batch_norm(x, input, has_norm));
}

bool LayerChain::is_norm_of_next(std::size_t step, const Variable& x, const Shape& input,
                                 const ForwardContext& context) const {
  if (!is_fusible(step, context) || steps_[step + 1].epilogue != NormActivation::relu) return false;
  const std::optional<Shape> next_input = steps_[step].conv->output_shape(input);
  return next_input && is_fused(step + 2, x, *next_input, /*has_norm=*/true, context);
}

Variable LayerChain::operator()(const Variable& x, const ForwardContext& context,
                                const Epilogue& epilogue) const {
  Variable y = x;
  std::optional<BatchNormInput> pending;  // y, if the next step is to compute its batch norm and ReLU
  const auto add_activation_row = [&](const Step& step, const Module& fused_into) {
    if (context.rows != nullptr)
      context.rows->push_back(
          {.name = step.activation->path(),
           .type = fmt::format("{}, fused into {}", step.activation->describe(), name_in_parent(fused_into)),
           .outputs = {y.shape()}});
  };
  const auto epilogue_of = [&](const Step& step) {
    if (step.activation != nullptr) return Epilogue{.activation = step.epilogue};
    return &step == &steps_.back() ? epilogue : Epilogue();
  };
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    const bool is_next_pending = is_norm_of_next(i, y, y.shape(), context);
    if (pending || is_next_pending || is_fused(i, y, y.shape(), /*has_norm=*/false, context)) {
      const Step& norm = steps_[++i];
      y = step.layer->call_op(y, context, {}, "", [&] {
        pending = pending ? step.conv->with_statistics(*pending, *step.norm)
                          : step.conv->with_statistics(y, *step.norm);
        return pending->x;
      });
      if (is_next_pending) {
        const Module& next = *steps_[i + 1].layer;
        norm.layer->call_op(y, context, {}, ", fused into " + name_in_parent(next), [&] { return y; });
        add_activation_row(norm, next);
        continue;
      }
      const Epilogue fused = epilogue_of(norm);
      const NormActivation own = step.norm->arguments().options.activation;
      y = norm.layer->call_op(y, context, fused, "", [&] {
        return normalize(*pending, own == NormActivation::none ? fused.activation : own, fused.residual);
      });
      pending.reset();
      if (norm.activation != nullptr) add_activation_row(norm, *norm.layer);
    } else if (step.activation == nullptr) {
      y = (*step.layer)(y, context, epilogue_of(step));
    } else if (step.layer->has_forward_hooks() || step.activation->has_forward_hooks()) {
      y = (*step.activation)((*step.layer)(y, context), context,
                             &step == &steps_.back() ? epilogue : Epilogue());
    } else {
      y = (*step.layer)(y, context, epilogue_of(step));
      add_activation_row(step, *step.layer);
    }
  }
  return y;
}

Sequential::Sequential(std::vector<Named> layers) : size_(layers.size()) {
  for (const auto& [name, layer] : layers) add_child(name, layer);
  chain_ = LayerChain(layers);
}

Variable Sequential::forward(const Variable& x, const ForwardContext& context) { return chain_(x, context); }

Variable Sequential::forward_with(const Variable& x, const ForwardContext& context,
                                  const Epilogue& epilogue) {
  return chain_(x, context, epilogue);
}

std::string Sequential::describe() const { return fmt::format("Sequential of {}", size_); }

ResidualBlock::ResidualBlock(std::vector<NamedModule> body, std::shared_ptr<Module> shortcut)
    : body_size_(body.size()), shortcut_(std::move(shortcut)) {
  for (const auto& [name, layer] : body) add_child(name, layer);
  if (shortcut_) add_child("downsample", shortcut_);
  body_ = LayerChain(body);
}

Variable ResidualBlock::forward(const Variable& x, const ForwardContext& context) {
  if (!checkpoints_ || !context.training) return compute(x, context);
  CheckpointedPart uses;
  for (const NamedParameter& parameter : parameters())
    if (parameter.variable.requires_grad()) uses.parameters.push_back(parameter.variable);
  std::reverse(uses.parameters.begin(), uses.parameters.end());  // about the order of backward
  for (const NamedBuffer& buffer : buffers()) uses.state.push_back(buffer.tensor);
  ForwardContext without_rows = context;
  without_rows.rows = nullptr;
  return convoy::checkpoint_activations(
      x, uses, [this, without_rows](const Variable& input) { return compute(input, without_rows); });
}

Variable ResidualBlock::compute(const Variable& x, const ForwardContext& context) const {
  const auto row_count = [&] { return context.rows == nullptr ? 0 : std::ssize(*context.rows); };
  const auto begin = row_count();
  // Before the body, because the body's last layer may add it.
  const Epilogue epilogue{.residual = shortcut_ ? (*shortcut_)(x, context) : x,
                          .activation = NormActivation::relu};
  const auto middle = row_count();
  const bool fuses = body_.fusion() >= Fusion::residual_and_relu;
  const Variable y = body_(x, context, fuses ? epilogue : Epilogue());
  if (context.rows != nullptr)  // in the order of registration: the body first
    std::rotate(context.rows->begin() + begin, context.rows->begin() + middle, context.rows->end());
  if (fuses) return y;
  check(y.shape() == epilogue.residual.shape(),
        "the body returns shape {}, the shortcut {}; expected equal shapes", y.shape().text(),
        epilogue.residual.shape().text());
  return epilogue.apply(y);
}

std::string ResidualBlock::describe() const { return fmt::format("ResidualBlock of {}", body_size_); }

int checkpoint_residual_blocks(Module& root) {
  int count = 0;
  for (Module* const module : root.modules())
    if (auto* const block = dynamic_cast<ResidualBlock*>(module)) {
      block->checkpoint_activations(true);
      ++count;
    }
  return count;
}

}  // namespace convoy::nn
