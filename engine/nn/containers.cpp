#include <algorithm>
#include <iterator>

#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/check.h"

namespace convoy::nn {
namespace {

bool is_relu(const Module& module) {
  const auto* const activation = dynamic_cast<const Activation*>(&module);
  return activation != nullptr && activation->kind() == ActivationKind::relu;
}

/// Returns the last name of the module's path.
std::string name_in_parent(const Module& module) {
  return module.path().substr(module.path().rfind('.') + 1);
}

}  // namespace

LayerChain::LayerChain(const std::vector<NamedModule>& layers) {
  for (const auto& [name, layer] : layers) {
    if (is_relu(*layer) && fusion_ != Fusion::none) {
      steps_.back().relu = layer.get();
      fusion_ = Fusion::none;
    } else {
      steps_.push_back({.layer = layer.get(), .relu = nullptr});
      fusion_ = layer->fusion();
    }
  }
}

Variable LayerChain::operator()(const Variable& x, const ForwardContext& context,
                                const Epilogue& epilogue) const {
  Variable y = x;
  for (const Step& step : steps_) {
    const Epilogue last = &step == &steps_.back() ? epilogue : Epilogue();
    if (step.relu == nullptr) {
      y = (*step.layer)(y, context, last);
      continue;
    }
    if (step.layer->has_forward_hooks() || step.relu->has_forward_hooks()) {
      y = (*step.relu)((*step.layer)(y, context), context, last);
      continue;
    }
    y = (*step.layer)(y, context, {.relu = true});
    if (context.rows != nullptr)
      context.rows->push_back(
          {.name = step.relu->path(),
           .type = fmt::format("{}, fused into {}", step.relu->describe(), name_in_parent(*step.layer)),
           .outputs = {y.shape()}});
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
  const auto row_count = [&] { return context.rows == nullptr ? 0 : std::ssize(*context.rows); };
  const auto begin = row_count();
  // Before the body, because the body's last layer may add it.
  const Epilogue epilogue{.residual = shortcut_ ? (*shortcut_)(x, context) : x, .relu = true};
  const auto middle = row_count();
  const bool fuses = body_.fusion() == Fusion::residual_and_relu;
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

}  // namespace convoy::nn
