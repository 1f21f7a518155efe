// Module: named parameters, named buffers, children, and a forward function.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/autograd/variable.h"
#include "kernels/random.h"

namespace convoy {

/// What a forward pass is for. Handed down explicitly: nobody forgets to switch a model back to training.
struct Pass {
  bool training = false;   // batch statistics and dropout
  std::uint64_t seed = 0;  // of the run; with epoch and sample_ids it keys dropout
  std::int64_t epoch = 0;
  Tensor sample_ids;  // i32 [N]: global ids of the batch's samples; needed where a model drops out
  Tensor epoch_cell;  // i32 [1] on the model's device: where defined, the epoch is read there, not above

  static Pass inference() { return {}; }
};

/// What a parameter is: decides its layout in checkpoints and the groups that optimizers make.
enum class ParameterKind : std::uint8_t {
  filter,  // [O, kH, kW, I] in memory; [O, I, kH, kW] in checkpoints
  weight,  // [out, in]
  bias,
  norm_scale,
  norm_shift,
};

struct NamedParameter {
  std::string name;  // "layer1.0.conv1.weight": torchvision's names
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

/// What comes right after a layer, element by element, and may be computed with it:
/// y = relu?(layer(x) + residual?).
struct Epilogue {
  Variable residual = {};  // undefined: none
  bool relu = false;

  /// On a layer's finished result.
  Variable apply(const Variable& y) const;
};

class Module {
 public:
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  virtual Variable forward(const Variable& x, const Pass& pass) = 0;
  /// forward and then the epilogue. A layer with a kernel that does both in one pass over memory overrides
  /// it; the result is the same.
  virtual Variable forward_with(const Variable& x, const Pass& pass, const Epilogue& epilogue);

  /// The output shape for an input shape, without computing: how a model is checked when it is built. Layers
  /// add their row to `rows` where given. Throws UsageError that begins with the layer's path:
  /// "layer2.0.conv1 (Conv2d 64 -> 128, 3x3): input [1, 8, 8, 32] has 32 channels, expected 64".
  Shape infer(const Shape& input, const std::string& path = "",
              std::vector<LayerSummary>* rows = nullptr) const {
    return infer_at(input, path, rows);
  }

  /// "Conv2d 64 -> 128, 3x3 stride 2 padding 1".
  virtual std::string describe() const = 0;

  /// This one and all below it, depth first, in order of registration.
  std::vector<Module*> modules();
  /// Depth first, in order of registration; names joined by dots.
  std::vector<NamedParameter> parameters() const;
  std::vector<NamedBuffer> buffers() const;
  /// Moves parameters and buffers. Variables stay the same, so optimizers and hooks keep their hold.
  void to(const Device& device);
  /// To another floating-point type, f32 or f64.
  void to(DType dtype);
  /// Gives every parameter that a layer computes with in the type of its input a copy in f16 or bf16
  /// (filters, weights and biases; batch norms compute in f32), so that it is rounded once an update and not
  /// in every forward pass. The optimizer writes the copies with the parameters; whatever else writes
  /// parameters calls refresh_half_copies(), which does nothing where no copies are kept.
  void keep_half_copies(DType dtype);
  void refresh_half_copies();
  /// Draws all parameters anew, each by PyTorch's default or what the module was told, keyed by (seed, its
  /// name).
  void initialize(std::uint64_t seed);

 protected:
  Module() = default;
  struct Inferred {
    Shape output;
    std::int64_t flops = 0;
  };
  /// A layer overrides this: checks the input and says what comes out.
  virtual Inferred infer_layer(const Shape& input) const;
  /// A container overrides this: passes shapes through its children.
  virtual Shape infer_at(const Shape& input, const std::string& path, std::vector<LayerSummary>* rows) const;

  /// How initialize() fills a parameter.
  struct Init {
    enum class Kind : std::uint8_t { constant, uniform, normal };
    Kind kind = Kind::constant;
    double value = 0;  // the constant; the bound of U(-value, value); the standard deviation of N(0, value^2)

    static Init constant(double value) { return {Kind::constant, value}; }
    static Init uniform(double bound) { return {Kind::uniform, bound}; }
    static Init normal(double deviation) { return {Kind::normal, deviation}; }
  };
  /// Values are drawn by initialize(); before that they are zeros.
  Variable add_parameter(std::string name, const Shape& shape, ParameterKind kind, Init init);
  /// The returned cell follows the module when it moves.
  std::shared_ptr<Tensor> add_buffer(std::string name, const Shape& shape, double value);
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
  /// f(module, path) for this module and all below it, depth first, in order of registration.
  template <class F>
  void visit(const std::string& path, F&& f) const;

  std::vector<OwnParameter> parameters_;
  std::vector<OwnBuffer> buffers_;
  std::vector<Child> children_;
};

}  // namespace convoy
