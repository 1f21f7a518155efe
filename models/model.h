// Model: an image classification network, built for one input shape.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/engine/nn/module.h"

namespace convoy::models {

/// A handle to a network that maps images to logits. Copies refer to the same network.
class Model {
 public:
  /// Creates a model for images of shape `input` ([H, W, C]) from the network `root`. Infers the shapes of
  /// all layers and throws UsageError with the name of the layer if one does not fit. Initializes all
  /// parameters from `seed`, in f32 on the CPU, and then moves them to `device`.
  Model(std::string name, std::shared_ptr<nn::Module> root, Shape input, int classes, std::uint64_t seed,
        const DeviceContext& device);

  const std::string& name() const { return name_; }
  const Shape& input() const { return input_; }  // [H, W, C]
  int classes() const { return classes_; }
  nn::Module& root() const { return *root_; }

  /// Returns the logits [N, classes] of images [N, H, W, C]. Throws UsageError if the images do not have the
  /// shape that the model was built for.
  Variable operator()(const Variable& images,
                      const nn::ForwardContext& context = nn::ForwardContext::inference()) const;
  Variable operator()(const Tensor& images,
                      const nn::ForwardContext& context = nn::ForwardContext::inference()) const {
    return (*this)(Variable(images), context);
  }
  std::vector<nn::NamedParameter> parameters() const { return root_->parameters(); }
  std::vector<nn::NamedBuffer> buffers() const { return root_->buffers(); }
  /// Moves the network to a device, or converts it to a type, for all handles. Returns this handle.
  Model& to(const DeviceContext& device);
  Model& to(DType dtype);
  /// Returns the total number of elements of all parameters.
  std::int64_t parameter_count() const;
  /// Returns the floating-point operations of the forward pass of one image. One multiply-add counts as 2.
  std::int64_t flops() const;
  /// Returns a table of the layers with their output shapes for one image, their parameters and MFLOPs, and
  /// the totals. A ReLU that is fused into another layer is shown in both rows.
  std::string summary() const;

 private:
  std::string name_;
  std::shared_ptr<nn::Module> root_;
  Shape input_;
  int classes_;
};

}  // namespace convoy::models
