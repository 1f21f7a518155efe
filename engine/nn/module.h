// Module: named parameters, named buffers, children, and a forward function.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/engine/autograd/variable.h"
#include "convoy/kernels/base/random.h"
#include "convoy/kernels/batchnorm.h"

namespace convoy::nn {

struct LayerSummary;

/// The inputs or the outputs of a module, where there may be several.
using Variables = std::vector<Variable>;

/// The purpose and the random keys of one forward pass. It is an argument of every forward(), so there is no
/// training mode that a caller could forget to switch.
struct ForwardContext {
  bool training = false;     // batch statistics and dropout
  std::uint64_t seed = 0;    // of the run; keys dropout together with epoch, sample_ids and the path
  std::int64_t epoch = 0;    // of the training, from 0
  Tensor sample_ids = {};    // i32 [N]: global ids of the batch's samples; required by dropout
  Tensor device_epoch = {};  // i32 [1] on the model's device; if defined, replaces `epoch`
  Tensor norm_batch = {};    // BatchNormStatistics::batch of batch norms; undefined: their momentum alone
  std::vector<LayerSummary>* rows = nullptr;  // if not null, every layer that runs appends its row

  /// Returns the context of an evaluation.
  static ForwardContext inference() { return {}; }
};

/// The role of a parameter. It determines the layout in checkpoints and the optimizer's parameter groups.
enum class ParameterKind : std::uint8_t {
  filter,      // [O, kH, kW, I] in memory; [O, I, kH, kW] in checkpoints
  weight,      // [out, in]; [num_embeddings, embedding_dim] of an Embedding
  bias,        // one element per output
  norm_scale,  // of a normalization
  norm_shift,  // of a normalization
};

/// A parameter of a module.
struct NamedParameter {
  std::string name;                            // "layer1.0.conv1.weight", as in torchvision
  Variable variable;                           // a leaf
  ParameterKind kind = ParameterKind::weight;  // its role
};

/// A buffer of a module: a tensor that is part of its state and has no gradient.
struct NamedBuffer {
  std::string name;                                // "bn1.running_mean"
  Tensor tensor;                                   // shares the storage of the buffer
  ParameterKind kind = ParameterKind::norm_shift;  // determines the layout in checkpoints
};

/// One row of a model's summary.
struct LayerSummary {
  std::string name;  // path: "layer1.0.conv1"
  std::string type;  // "Conv2d 64 -> 64, 3x3", or with a fused epilogue "BatchNorm2d 64 + residual + ReLU"
  std::vector<Shape> outputs;   // with the batch axis
  std::int64_t parameters = 0;  // number of elements of its own parameters
  std::int64_t flops = 0;       // of the forward operations that were recorded; a multiply-add is 2
};

/// Elementwise operations that follow a layer and that its kernel may compute as well: y =
/// activation(layer(x) + residual?).
struct Epilogue {
  Variable residual = {};                              // undefined: none
  FusedActivation activation = FusedActivation::none;  // applied at last

  /// Returns whether there is nothing to compute.
  bool is_empty() const { return !residual.defined() && activation == FusedActivation::none; }
  /// Returns whether there is at most an activation, and this one.
  bool is_at_most(FusedActivation one) const {
    return !residual.defined() && (activation == FusedActivation::none || activation == one);
  }
  /// Applies the epilogue to a layer's result.
  Variable apply(const Variable& y) const;
};

/// Returns the FNV-1a hash of a name or a path, which keys random draws.
std::uint32_t hash_of(std::string_view name);

/// The shape and the element type of an input.
struct InputType {
  Shape shape;                 // without or with the batch axis, as the function that takes it says
  std::optional<DType> dtype;  // nullopt: the type of the module's first parameter, else f32

  /// Makes an input from its shape.
  // NOLINTNEXTLINE: a shape converts implicitly.
  InputType(const Shape& sizes, std::optional<DType> type = std::nullopt) : shape(sizes), dtype(type) {}
};

class Module;

/// A function that a module calls after each forward pass, with its inputs and its outputs. It may replace
/// the outputs.
using ForwardHook =
    std::function<void(const Module& module, std::span<const Variable> inputs, std::span<Variable> outputs)>;

/// The owner of a forward hook, which removes the hook when it is destroyed. It may outlive the module.
class [[nodiscard]] HookHandle {
 public:
  /// Makes a handle of no hook.
  HookHandle() = default;
  /// Takes over the hook of another handle.
  HookHandle(HookHandle&&) = default;
  /// Removes the hook of this handle, then takes over that of `other`.
  HookHandle& operator=(HookHandle&& other) noexcept;
  /// Removes the hook.
  ~HookHandle() { remove(); }
  /// Removes the hook. Does nothing if it is removed already.
  void remove();

 private:
  friend class Module;
  using Hooks = std::list<ForwardHook>;
  HookHandle(const std::shared_ptr<Hooks>& hooks, Hooks::iterator hook) : hooks_(hooks), hook_(hook) {}
  std::weak_ptr<Hooks> hooks_;
  Hooks::iterator hook_;
};

/// Returns the parameter in the type in which a layer computes for the input x: cast to f16 or bf16 if x has
/// that type, else as it is. The parameter may be undefined.
Variable for_input(const Variable& parameter, const Variable& x);

/// A layer or a container of layers: named parameters, named buffers, named children and a forward function.
/// A user's module is a constructor, which registers them, and forward(), which calls the children. A module
/// is called like a function: `y = module(x, context)`. A module with several inputs or several outputs
/// overrides forward_all() instead, and is called with a list: `outputs = module({x, memory}, context)`. Not
/// thread-safe: one thread at a time uses a module and its descendants.
class Module {
 public:
  /// The seed of a network for which initialize() was not called.
  static constexpr std::uint64_t kInitialSeed = 1;

  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  /// Computes forward() for the input x, followed by the epilogue, which the module computes itself if it
  /// fuses() it. Appends a row to context.rows if that is not null and this module has no children or has
  /// parameters of its own. A UsageError gets the path and the description of the module that threw it in
  /// front: "layer2.0.conv1 (Conv2d 64 -> 128, 3x3): input [1, 8, 8, 32] has 32 channels, expected 64".
  Variable operator()(const Variable& x, const ForwardContext& context = {}, const Epilogue& epilogue = {});
  /// Does the same for a tensor, such as the images of a batch.
  Variable operator()(const Tensor& x, const ForwardContext& context = {}) {
    return (*this)(Variable(x), context);
  }
  /// Computes forward_all() for a list of inputs, with the same row and the same errors. Every module can be
  /// called so; one that overrides forward() takes one input and has one output.
  Variables operator()(const Variables& inputs, const ForwardContext& context = {});

  /// Returns the outputs for inputs of the given shapes on the meta device, so nothing is computed or
  /// changed: the outputs have a shape and a recorded_cost(), and no data. Runs in inference mode. Appends
  /// rows to `rows` unless that is null. Checks a model when it is built. Throws UsageError like a call.
  Variables infer(const std::vector<InputType>& inputs, std::vector<LayerSummary>* rows = nullptr);
  /// Does so for one input and one output.
  Variable infer(const Shape& input, std::vector<LayerSummary>* rows = nullptr,
                 std::optional<DType> dtype = std::nullopt) {
    return infer({{input, dtype}}, rows).front();
  }

  /// Calls `hook` after each forward pass of this module, until the handle is destroyed. Hooks are called in
  /// the order in which they were added. An epilogue follows them: a module with hooks fuses none, and an
  /// activation with hooks is not fused, so a hook sees what the module alone computes.
  HookHandle add_forward_hook(ForwardHook hook);
  /// Returns whether this module has hooks of its own.
  bool has_forward_hooks() const { return !hooks_->empty(); }

  /// Returns the names from the root of the model to this module, joined by dots: "layer1.0.conv1". Empty for
  /// a root and for a module that is no other module's child.
  const std::string& path() const { return path_; }
  /// Returns the type and the sizes, such as "Conv2d 64 -> 128, 3x3 stride 2 padding 1".
  virtual std::string describe() const { return "Module"; }
  /// Returns whether forward_with() computes this epilogue. A module that overrides it overrides
  /// forward_with() instead of forward().
  virtual bool fuses(const Epilogue& epilogue) const { return epilogue.is_empty(); }
  /// Returns the activation that this module is, if the layer before it may compute it; none otherwise.
  virtual FusedActivation fusible_activation() const { return FusedActivation::none; }

  /// Returns this module and all its descendants, depth first, in order of registration.
  std::vector<Module*> modules();
  /// Returns the parameters of this module and its descendants, depth first, in order of registration. Names
  /// are paths joined by dots.
  std::vector<NamedParameter> parameters() const;
  /// Returns the buffers in the same order, with such names.
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
  /// Draws the initial values of all parameters and buffers again. Each parameter's draws are keyed by (seed, its name),
  /// so adding a layer does not change the others. Distributions are PyTorch's defaults unless a layer was given another.
  /// A network that was never initialized has the values of initialize(kInitialSeed): they are drawn when it is first
  /// called, moved, converted or asked for its parameters or buffers. Values that were set before are kept.
  void initialize(std::uint64_t seed);

 protected:
  /// Makes a module without parameters, buffers and children.
  Module() = default;
  /// Moves all that a module owns. The other one may then only be destroyed.
  Module(Module&&) = default;
  /// Computes the output for the input x. Checks the shape of x if the ops that it calls do not. A module
  /// overrides this function, forward_with() or forward_all(). Unless overridden, throws UsageError.
  virtual Variable forward(const Variable& x, const ForwardContext& context);
  /// Computes the outputs for a list of inputs. Unless overridden, calls forward_with() with the only input,
  /// and throws UsageError if there is not exactly one.
  virtual Variables forward_all(const Variables& inputs, const ForwardContext& context);
  /// Computes the output followed by an epilogue for which fuses() is true, with the same result as the two
  /// separate operations. Unless overridden, calls forward(): fuses() accepts nothing but an empty epilogue.
  virtual Variable forward_with(const Variable& x, const ForwardContext& context, const Epilogue& epilogue);

  /// The distribution from which initialize() fills a parameter.
  struct Init {
    /// The family of the distribution.
    enum class Kind : std::uint8_t { constant, uniform, normal };
    Kind kind = Kind::constant;  // the family
    double value = 0;  // the constant, the bound of U(-value, value), or the deviation of N(0, value^2)
    /// Whether filter i of a parameter [O, kH, kW, I], for all i < min(O, I), copies channel i of its input
    /// instead: a 1 in the center of this channel, and zeros elsewhere.
    bool dirac = false;

    /// Returns the value of all elements until the network is initialized.
    double first() const { return kind == Kind::constant ? value : 0; }
    /// Returns the distribution of a constant.
    static Init constant(double value) { return {Kind::constant, value}; }
    /// Returns U(-bound, bound).
    static Init uniform(double bound) { return {Kind::uniform, bound}; }
    /// Returns N(0, deviation^2).
    static Init normal(double deviation) { return {Kind::normal, deviation}; }
  };
  /// Registers a parameter, which holds the constant of `init`, or zeros until the network is initialized.
  Variable add_parameter(std::string name, const Shape& shape, ParameterKind kind, Init init);
  /// Registers a buffer. It holds the constant of `init`, or zeros until the network is initialized. The returned
  /// pointer stays valid when the module moves to another device or type, and then points to the new tensor.
  std::shared_ptr<Tensor> add_buffer(std::string name, const Shape& shape, Init init,
                                     ParameterKind kind = ParameterKind::norm_shift);
  /// Registers a child module and returns it. Its path becomes that of this module and `name`, also if it was
  /// another module's child before. Throws UsageError if the child is null, if another child has the name, or
  /// if the child or a module below it is already below this module: the path of a module is unique, and
  /// forward() may call it several times.
  template <class M>
  std::shared_ptr<M> add_child(std::string name, std::shared_ptr<M> child) {
    attach(std::move(name), child);
    return child;
  }
  /// Does the same for a child by value, which is moved.
  template <std::derived_from<Module> M>
  std::shared_ptr<M> add_child(std::string name, M&& child) {
    return add_child(std::move(name), std::make_shared<M>(std::move(child)));
  }

 private:
  struct Child {
    std::string name;
    std::shared_ptr<Module> module;
  };
  struct OwnParameter {
    NamedParameter named;
    Init init;
  };
  struct OwnBuffer {
    std::string name;
    std::shared_ptr<Tensor> tensor;
    ParameterKind kind;
    Init init;
  };
  /// Initializes a parameter or a buffer. `name` is its path.
  static void fill(const Tensor& value, const Init& init, std::uint64_t seed, const std::string& name);
  /// Implements add_child().
  void attach(std::string name, std::shared_ptr<Module> child);
  /// Sets the path of this module, and those of its descendants to match.
  void set_path(const std::string& path);
  /// Returns compute(): a Variable, or Variables. Appends the row of the call, whose kernel computed the
  /// epilogue `fused` as well, and puts the path in front of an error.
  template <class F>
  auto call(std::span<const Variable> inputs, const ForwardContext& context, const Epilogue& fused,
            F&& compute);
  /// Returns the row of a call with this fused epilogue, including the FLOPs of descendants.
  LayerSummary row_of(std::span<const Variable> inputs, std::span<const Variable> outputs,
                      const Epilogue& fused) const;
  /// Draws the values of this module and its descendants that nothing has set, as initialize(kInitialSeed).
  void initialize_missing() const;
  /// Replaces all parameters and buffers by changed(tensor).
  template <class F>
  void change_values(F&& changed);
  void call_hooks(std::span<const Variable> inputs, std::span<Variable> outputs) const;
  /// Calls f(module, path) for this module and all its descendants, depth first, in order of registration.
  template <class F>
  void visit(const std::string& path, F&& f) const;

  std::string path_;
  std::shared_ptr<HookHandle::Hooks> hooks_ = std::make_shared<HookHandle::Hooks>();
  std::vector<OwnParameter> parameters_;
  std::vector<OwnBuffer> buffers_;
  std::vector<Child> children_;
  mutable bool is_initialized_ = false;
};

/// A layer of a container, and its name. Calls the layer that it holds; copies hold the same one.
struct Layer {
  std::string name;  // empty: the container numbers its layers
  std::shared_ptr<Module>
      module;  // null only in one that was default-constructed, or made from a null pointer

  /// Makes one without a layer.
  Layer() = default;
  /// Makes one from a layer by value, which is moved: Layer(nn::Linear(2, 3)).
  template <std::derived_from<Module> M>
  Layer(M&& layer) : Layer({}, std::make_shared<M>(std::move(layer))) {}
  /// Makes one with a name: {"fc1", nn::Linear(2, 3)}.
  template <std::derived_from<Module> M>
  Layer(std::string layer_name, M&& layer)
      : Layer(std::move(layer_name), std::make_shared<M>(std::move(layer))) {}
  /// Makes one that shares a layer.
  template <std::derived_from<Module> M>
  Layer(std::shared_ptr<M> layer) : module(std::move(layer)) {}
  /// Makes one that shares a layer, with a name.
  Layer(std::string layer_name, std::shared_ptr<Module> layer)
      : name(std::move(layer_name)), module(std::move(layer)) {}

  /// Calls the layer.
  Variable operator()(const Variable& x, const ForwardContext& context = {},
                      const Epilogue& fused = {}) const {
    return (*module)(x, context, fused);
  }
};

}  // namespace convoy::nn
