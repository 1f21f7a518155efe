#include "engine/nn/layers.h"
#include "kernels/base/check.h"
#include "kernels/runtime/named_range.h"

namespace convoy {
namespace {

bool is_relu(const Module& module) {
  const auto* const activation = dynamic_cast<const Activation*>(&module);
  return activation != nullptr && activation->kind() == ActivationKind::relu;
}

/// Runs the first `count` children in order. Fuses a ReLU into the layer before it, and the epilogue into the
/// last layer.
template <class Children>
Variable run(const Children& children, std::size_t count, const Variable& x, const ForwardContext& context,
             const Epilogue& epilogue) {
  Variable y = x;
  for (std::size_t i = 0; i < count;) {
    const NamedRange range(children[i].name);
    Module& layer = *children[i++].module;
    const bool relu_follows = i < count && is_relu(*children[i].module);
    if (relu_follows) ++i;
    if (i == count && !relu_follows) return layer.forward_with(y, context, epilogue);
    y = layer.forward_with(y, context, {.relu = relu_follows});
  }
  return epilogue.apply(y);
}

}  // namespace

Sequential::Sequential(std::vector<Named> layers) {
  for (Named& layer : layers) add_child(std::move(layer.first), std::move(layer.second));
}

Variable Sequential::forward(const Variable& x, const ForwardContext& context) {
  return forward_with(x, context, {});
}

Variable Sequential::forward_with(const Variable& x, const ForwardContext& context,
                                  const Epilogue& epilogue) {
  return run(children(), children().size(), x, context, epilogue);
}

std::string Sequential::describe() const { return fmt::format("Sequential of {}", children().size()); }

Shape Sequential::infer_at(const Shape& input, const std::string& path,
                           std::vector<LayerSummary>* rows) const {
  Shape shape = input;
  for (const Child& child : children()) shape = child.module->infer(shape, join_path(path, child.name), rows);
  return shape;
}

ResidualBlock::ResidualBlock(std::vector<Sequential::Named> body, std::shared_ptr<Module> shortcut)
    : body_size_(body.size()), shortcut_(std::move(shortcut)) {
  for (Sequential::Named& layer : body) add_child(std::move(layer.first), std::move(layer.second));
  if (shortcut_) add_child("downsample", shortcut_);
}

Variable ResidualBlock::forward(const Variable& x, const ForwardContext& context) {
  return run(children(), body_size_, x, context,
             {.residual = shortcut_ ? shortcut_->forward(x, context) : x, .relu = true});
}

std::string ResidualBlock::describe() const { return fmt::format("ResidualBlock of {}", body_size_); }

Shape ResidualBlock::infer_at(const Shape& input, const std::string& path,
                              std::vector<LayerSummary>* rows) const {
  Shape shape = input;
  for (std::size_t i = 0; i < body_size_; ++i)
    shape = children()[i].module->infer(shape, join_path(path, children()[i].name), rows);
  const Shape shortcut = shortcut_ ? shortcut_->infer(input, join_path(path, "downsample"), rows) : input;
  check(shape == shortcut, "{} ({}): the body returns shape {}, the shortcut {}; expected equal shapes", path,
        describe(), shape.text(), shortcut.text());
  return shape;
}

}  // namespace convoy
