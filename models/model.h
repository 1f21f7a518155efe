// Model: a network with the input that it was built and checked for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/nn/module.h"

namespace convoy {

/// A handle: copies are the same model.
class Model {
 public:
  /// Infers every layer's shape from `input` ([H, W, C]) and throws UsageError that names the layer where one
  /// does not fit; then draws all parameters from `seed`, in f32 on the CPU, and moves them to the device.
  Model(std::string name, std::shared_ptr<Module> root, Shape input, int classes, std::uint64_t seed,
        const Device& device);

  const std::string& name() const { return name_; }
  const Shape& input() const { return input_; }  // [H, W, C]
  int classes() const { return classes_; }
  Module& root() const { return *root_; }

  /// images [N, H, W, C] -> logits [N, classes]. UsageError for images of another size than the model was
  /// built for.
  Variable operator()(const Variable& images, const Pass& pass = Pass::inference()) const;
  Variable operator()(const Tensor& images, const Pass& pass = Pass::inference()) const {
    return (*this)(Variable(images), pass);
  }
  std::vector<NamedParameter> parameters() const { return root_->parameters(); }
  std::vector<NamedBuffer> buffers() const { return root_->buffers(); }
  Model to(const Device& device) const;
  Model to(DType dtype) const;
  std::int64_t parameter_count() const;
  /// Forward multiply-adds of one image, times 2.
  std::int64_t flops() const;
  /// A table: layers, output shapes of one image, parameters, FLOPs; and their totals.
  std::string summary() const;

 private:
  std::string name_;
  std::shared_ptr<Module> root_;
  Shape input_;
  int classes_;
};

}  // namespace convoy
