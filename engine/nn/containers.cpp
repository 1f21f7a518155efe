#include "engine/nn/layers.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

std::string child_path(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

}  // namespace

Sequential::Sequential(std::vector<Named> layers) {
  for (Named& layer : layers) add_child(std::move(layer.first), std::move(layer.second));
}

Variable Sequential::forward(const Variable& x, const Pass& pass) {
  Variable y = x;
  for (const Child& child : children()) y = child.module->forward(y, pass);
  return y;
}

std::string Sequential::describe() const { return fmt::format("Sequential of {}", children().size()); }

Shape Sequential::infer_at(const Shape& input, const std::string& path,
                           std::vector<LayerSummary>* rows) const {
  Shape shape = input;
  for (const Child& child : children())
    shape = child.module->infer(shape, child_path(path, child.name), rows);
  return shape;
}

ResidualBlock::ResidualBlock(std::vector<Sequential::Named> body, std::shared_ptr<Module> shortcut)
    : body_size_(body.size()), shortcut_(std::move(shortcut)) {
  for (Sequential::Named& layer : body) add_child(std::move(layer.first), std::move(layer.second));
  if (shortcut_) add_child("downsample", shortcut_);
}

Variable ResidualBlock::forward(const Variable& x, const Pass& pass) {
  Variable y = x;
  for (std::size_t i = 0; i < body_size_; ++i) y = children()[i].module->forward(y, pass);
  return relu(y + (shortcut_ ? shortcut_->forward(x, pass) : x));
}

std::string ResidualBlock::describe() const { return fmt::format("ResidualBlock of {}", body_size_); }

Shape ResidualBlock::infer_at(const Shape& input, const std::string& path,
                              std::vector<LayerSummary>* rows) const {
  Shape shape = input;
  for (std::size_t i = 0; i < body_size_; ++i)
    shape = children()[i].module->infer(shape, child_path(path, children()[i].name), rows);
  const Shape shortcut = shortcut_ ? shortcut_->infer(input, child_path(path, "downsample"), rows) : input;
  check(shape == shortcut, "{} ({}): the body gives {}, the shortcut {}", path, describe(), shape.text(),
        shortcut.text());
  return shape;
}

}  // namespace convoy
