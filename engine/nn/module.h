// Module: named parameters, named buffers, children, and a forward function.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/autograd/variable.h"
#include "kernels/base/random.h"

namespace convoy {

/// The purpose and the random keys of one forward pass. It is an argument of every forward(), so there is no
/// training mode that a caller could forget to switch.
struct ForwardContext {
  bool training = false;   // batch statistics and dropout
  std::uint64_t seed = 0;  // of the run; keys dropout together with epoch and sample_ids
  std::int64_t epoch = 0;
  Tensor sample_ids;    // i32 [N]: global ids of the batch's samples; required by dropout
  Tensor device_epoch;  // i32 [1] on the model's device; if defined, replaces `epoch`

  static ForwardContext inference() { return {}; }
};

/// The role of a parameter. It determines the layout in checkpoints and the optimizer's parameter groups.
enum class ParameterKind : std::uint8_t {
  filter,  // [O, kH, kW, I] in memory; [O, I, kH, kW] in checkpoints
  weight,  // [out, in]
  bias,
  norm_scale,
  norm_shift,
};

struct NamedParameter {
  std::string name;  // "layer1.0.conv1.weight", as in torchvision
  Variable variable;
  ParameterKind kind = ParameterKind::weight;
};

struct NamedBuffer {
  std::string name;  // "bn1.running_mean"
  Tensor tensor;
};

/// One row of a model's summary.
struct LayerSummary {
  std::string name;  // path: "layer1.0.conv1"
  std::string type;  // "Conv2d 64 -> 64, 3x3"
  Shape output;      // with N = 1
  std::int64_t parameters = 0;
  std::int64_t flops = 0;  // forward, one sample; a multiply-add is 2
};

/// Elementwise operations that follow a layer and may be fused into its kernel: y = relu?(layer(x) +
/// residual?).
struct Epilogue {
  Variable residual = {};  // undefined: none
  bool relu = false;

  /// Applies the epilogue to a layer's result.
  Variable apply(const Variable& y) const;
};

/// A layer or a container of layers: named parameters, named buffers, named children and a forward function.
class Module {
 public:
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Computes the output for the input x.
  virtual Variable forward(const Variable& x, const ForwardContext& context) = 0;
  /// Computes forward() followed by the epilogue. A layer whose kernel fuses both overrides this function;
  /// the result must be the same.
  virtual Variable forward_with(const Variable& x, const ForwardContext& context, const Epilogue& epilogue);

  /// Returns the output shape for an input shape without computing, which checks a model when it is built.
  /// Each layer appends its row to `rows` unless that is null. Throws UsageError with the layer's path in
  /// front: "layer2.0.conv1 (Conv2d 64 -> 128, 3x3): input [1, 8, 8, 32] has 32 channels, expected 64".
  Shape infer(const Shape& input, const std::string& path = "",
              std::vector<LayerSummary>* rows = nullptr) const {
    return infer_at(input, path, rows);
  }

  /// Returns the type and the sizes, such as "Conv2d 64 -> 128, 3x3 stride 2 padding 1".
  virtual std::string describe() const = 0;

  /// Returns this module and all its descendants, depth first, in order of registration.
  std::vector<Module*> modules();
  /// Return the parameters and the buffers of this module and its descendants, depth first, in order of
  /// registration. Names are paths joined by dots.
  std::vector<NamedParameter> parameters() const;
  std::vector<NamedBuffer> buffers() const;
  /// Moves parameters and buffers to `device`. The Variables stay the same, so references in optimizers and
  /// hooks remain valid. Gradients are dropped.
  void to(const DeviceContext& device);
  /// Converts parameters and buffers to another floating-point type. Gradients are dropped. Throws UsageError
  /// for any other type.
  void to(DType dtype);
  /// Adds a low-precision copy in `dtype`, f16 or bf16, to every filter, weight and bias; batch norms compute
  /// in f32. Parameters are then rounded once per step instead of in every forward pass. The optimizer
  /// updates the copies with the parameters; other code that writes parameters must call
  /// refresh_low_precision_copies(). Throws UsageError for any other type.
  void keep_low_precision_copies(DType dtype);
  /// Rounds all parameters into their low-precision copies. Does nothing for parameters without one.
  void refresh_low_precision_copies();
  /// Initializes all parameters and buffers. Each parameter's draws are keyed by (seed, its name), so adding
  /// a layer does not change the others. Distributions are PyTorch's defaults unless a layer was given
  /// another.
  void initialize(std::uint64_t seed);

 protected:
  Module() = default;
  struct Inferred {
    Shape output;
    std::int64_t flops = 0;
  };
  /// Checks the input shape, and returns the output shape and the FLOPs. Overridden by layers; the default
  /// returns the input shape.
  virtual Inferred infer_layer(const Shape& input) const;
  /// Implements infer(). Overridden by containers, which pass the shape through their children.
  virtual Shape infer_at(const Shape& input, const std::string& path, std::vector<LayerSummary>* rows) const;

  /// The distribution from which initialize() fills a parameter.
  struct Init {
    enum class Kind : std::uint8_t { constant, uniform, normal };
    Kind kind = Kind::constant;
    double value = 0;  // the constant, the bound of U(-value, value), or the deviation of N(0, value^2)

    static Init constant(double value) { return {Kind::constant, value}; }
    static Init uniform(double bound) { return {Kind::uniform, bound}; }
    static Init normal(double deviation) { return {Kind::normal, deviation}; }
  };
  /// Registers a parameter, which holds zeros until initialize() is called.
  Variable add_parameter(std::string name, const Shape& shape, ParameterKind kind, Init init);
  /// Registers a buffer filled with `value`. The returned pointer stays valid when the module moves to
  /// another device or type, and then points to the new tensor.
  std::shared_ptr<Tensor> add_buffer(std::string name, const Shape& shape, double value);
  /// Registers a child module and returns it.
  template <class M>
  std::shared_ptr<M> add_child(std::string name, std::shared_ptr<M> child) {
    children_.push_back({std::move(name), child});
    return child;
  }

  struct Child {
    std::string name;
    std::shared_ptr<Module> module;
  };
  const std::vector<Child>& children() const { return children_; }

  /// Returns `path` and `name` joined by a dot, or `name` if the path is empty.
  static std::string join_path(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + "." + name;
  }

 private:
  struct OwnParameter {
    NamedParameter named;
    Init init;
  };
  struct OwnBuffer {
    std::string name;
    std::shared_ptr<Tensor> tensor;
    double initial;
  };
  /// Calls f(module, path) for this module and all its descendants, depth first, in order of registration.
  template <class F>
  void visit(const std::string& path, F&& f) const;

  std::vector<OwnParameter> parameters_;
  std::vector<OwnBuffer> buffers_;
  std::vector<Child> children_;
};

}  // namespace convoy
