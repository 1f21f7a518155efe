#include <algorithm>
#include <iterator>

#include "convoy/engine/autograd/activation_checkpoint.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/check.h"

namespace convoy::nn {
LayerChain::LayerChain(const std::vector<Layer>& layers) {
  for (const auto& [name, layer] : layers) layers_.push_back(layer.get());
}

Variable LayerChain::operator()(const Variable& x, const ForwardContext& context,
                                const Epilogue& epilogue) const {
  Variable y = x;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    Module& layer = *layers_[i];
    const bool is_last = i + 1 == layers_.size();
    const Module* const next = is_last ? nullptr : layers_[i + 1];
    const Epilogue activation{.activation = is_last ? FusedActivation::none : next->fusible_activation()};
    if (activation.is_empty() || !layer.fuses(activation) || layer.has_forward_hooks() ||
        next->has_forward_hooks()) {
      y = layer(y, context, is_last ? epilogue : Epilogue());
      continue;
    }
    y = layer(y, context, activation);
    if (context.rows != nullptr) {
      const std::string name = layer.path().substr(layer.path().rfind('.') + 1);
      context.rows->push_back({.name = next->path(),
                               .type = fmt::format("{}, fused into {}", next->describe(), name),
                               .outputs = {y.shape()}});
    }
    ++i;
  }
  return y;
}

bool LayerChain::fuses(const Epilogue& epilogue) const {
  return epilogue.is_empty() || (!layers_.empty() && layers_.back()->fuses(epilogue));
}

Sequential::Sequential(std::vector<Layer> layers) : size_(layers.size()) {
  for (std::size_t i = 0; i < size_; ++i)
    add_child(layers[i].name.empty() ? std::to_string(i) : layers[i].name, layers[i].module);
  chain_ = LayerChain(layers);
}

Variable Sequential::forward_with(const Variable& x, const ForwardContext& context,
                                  const Epilogue& epilogue) {
  return chain_(x, context, epilogue);
}

std::string Sequential::describe() const { return fmt::format("Sequential of {}", size_); }

ResidualBlock::ResidualBlock(std::vector<Layer> body, std::shared_ptr<Module> shortcut)
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
  std::ranges::reverse(uses.parameters);  // about the order of backward
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
                          .activation = FusedActivation::relu};
  const auto middle = row_count();
  const bool fuses = body_.fuses(epilogue);
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
