// Model: a network with a name, built for inputs of given shapes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convoy/engine/nn/module.h"

namespace convoy::models {

/// A handle to a network: an initialized module and the shapes of one sample's inputs and outputs. The first
/// axis of every input and output is the batch. Copies refer to the same network. Not thread-safe: one thread
/// at a time uses a network.
class Model {
 public:
  /// Creates a model from the network `root` for inputs of these shapes, without the batch axis. Infers the
  /// shapes of all layers and throws UsageError with the name of the layer if one does not fit. Initializes
  /// all parameters from `seed`, in f32 on the CPU, and then moves them to `device`.
  Model(std::string name, nn::Layer root, std::vector<nn::InputType> inputs, std::uint64_t seed = 1,
        const DeviceContext& device = Device::cpu());
  /// Creates a model with one input, in the type of its parameters: Model("mine", net, {32, 32, 3}).
  Model(std::string name, nn::Layer root, const Shape& input, std::uint64_t seed = 1,
        const DeviceContext& device = Device::cpu())
      : Model(std::move(name), std::move(root), std::vector{nn::InputType(input)}, seed, device) {}
  /// Does the same for a shape in braces.
  Model(std::string name, nn::Layer root, std::initializer_list<std::int64_t> input, std::uint64_t seed = 1,
        const DeviceContext& device = Device::cpu())
      : Model(std::move(name), std::move(root), Shape(input), seed, device) {}

  /// Returns the name that the constructor was given.
  const std::string& name() const { return name_; }
  /// Returns the shapes and the types of the inputs of one sample, without the batch axis.
  const std::vector<nn::InputType>& inputs() const { return inputs_; }
  /// Returns the shapes of the outputs for one sample, without the batch axis.
  const std::vector<Shape>& outputs() const { return outputs_; }
  /// Returns the shape of the first input: [H, W, C] of an image classifier.
  const Shape& input() const { return inputs_.front().shape; }
  /// Returns the last size of the first output: the number of classes of a classifier.
  int classes() const { return static_cast<int>(outputs_.front()[outputs_.front().rank() - 1]); }
  /// Returns the network.
  nn::Module& root() const { return *root_; }
  /// Converts to the network, for functions of one: save(model, "net.safetensors").
  operator nn::Module&() const { return *root_; }

  /// Returns the output [N, …] for an input [N, …]: the logits [N, classes] of images [N, H, W, C]. Throws
  /// UsageError if the input does not have the shape that the model was built for.
  Variable operator()(const Variable& x,
                      const nn::ForwardContext& context = nn::ForwardContext::inference()) const;
  /// Does the same for a tensor.
  Variable operator()(const Tensor& x,
                      const nn::ForwardContext& context = nn::ForwardContext::inference()) const {
    return (*this)(Variable(x), context);
  }
  /// Returns all outputs for all inputs. Throws UsageError like the call with one input.
  nn::Variables operator()(const nn::Variables& inputs,
                           const nn::ForwardContext& context = nn::ForwardContext::inference()) const;
  /// Returns all parameters of the network, as Module::parameters().
  std::vector<nn::NamedParameter> parameters() const { return root_->parameters(); }
  /// Returns all buffers of the network, as Module::buffers().
  std::vector<nn::NamedBuffer> buffers() const { return root_->buffers(); }
  /// Moves the network to a device, for all handles. Returns this handle.
  Model& to(const DeviceContext& device);
  /// Converts the network to a floating-point type, for all handles. Returns this handle. Throws UsageError
  /// for any other type.
  Model& to(DType dtype);
  /// Returns the total number of elements of all parameters.
  std::int64_t parameter_count() const;
  /// Returns the floating-point operations of the forward pass of one sample. One multiply-add counts as 2.
  std::int64_t flops() const;
  /// Returns a table of the layers with their output shapes for one sample, their parameters and MFLOPs, and
  /// the totals. A ReLU that is fused into another layer is shown in both rows.
  std::string summary() const;

 private:
  void check_input(std::size_t index, const Variable& x) const;
  /// Returns the outputs for a batch of one on the meta device. Appends rows as Module::infer() does.
  nn::Variables infer(std::vector<nn::LayerSummary>* rows = nullptr) const;

  std::string name_;
  std::shared_ptr<nn::Module> root_;
  std::vector<nn::InputType> inputs_;
  std::vector<Shape> outputs_;
};

}  // namespace convoy::models
