// Variable: a tensor in the graph of recorded operations, and what an op needs to record its backward.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "convoy/engine/tensor/tensor.h"

namespace convoy {

struct Node;

/// A shared handle to a value in the autograd graph: copies refer to the same variable. A leaf (a parameter
/// or an input) is constructed from a tensor. Any other variable is the result of an operation, and refers to
/// its creator if one of the inputs requires a gradient. The graph itself holds no values: the value of a
/// result lives as long as a handle that holds it, or an operation that saved it for its backward.
///
/// Methods are const where they change the shared state but not the handle. Of an undefined variable, only
/// defined(), requires_grad() and assignment are valid. Not thread-safe: one thread at a time uses the
/// variables of one graph, with its leaves.
class Variable {
 public:
  /// Makes an undefined variable.
  Variable() = default;
  /// Makes a leaf. Throws UsageError if `requires_grad` is set and `value` is not floating point.
  explicit Variable(Tensor value, bool requires_grad = false);
  /// Makes the result of `creator`. Called by record() only.
  Variable(Tensor value, std::shared_ptr<Node> creator);

  /// Returns whether this handle refers to a variable.
  bool defined() const { return state_ != nullptr; }
  /// Returns the value. Code that reads or writes its bytes calls wait_ready() first. Throws UsageError if
  /// the variable is undefined or this handle holds no value (without_value()).
  const Tensor& value() const;
  /// Makes the compute stream wait until the bytes of the value and of the low-precision copy are ready: runs
  /// the ready hook (set_ready_hook()) if one is set, and removes it. Every operation calls this for its
  /// inputs before its kernels read them.
  void wait_ready() const;
  /// Returns whether wait_ready() would do nothing.
  bool is_ready() const;
  /// Returns the shape of the value, also if this handle holds none.
  const Shape& shape() const;
  /// Returns the element type of the value, also if this handle holds none.
  DType dtype() const;
  /// Returns the device of the value, also if this handle holds none.
  Device device() const { return context().device(); }
  /// Returns the stream and the memory of the device.
  const DeviceContext& context() const;
  /// Returns whether backward() computes a gradient of the variable.
  bool requires_grad() const;
  /// Sets whether backward() computes a gradient of this leaf from now on, as to freeze a parameter. Without
  /// one, operations that are recorded later do not propagate gradients to it. Throws UsageError if this is
  /// not a leaf, or if `requires_grad` is set and the value is not floating point.
  void set_requires_grad(bool requires_grad) const;
  /// Returns whether no recorded operation computed the variable.
  bool is_leaf() const { return creator() == nullptr; }
  /// Returns the operation that computed this variable; null for a leaf.
  const std::shared_ptr<Node>& creator() const;

  /// Returns the gradient of a leaf. Undefined before the first backward that reaches the leaf, and after
  /// release_grad(). Its type is that of the value, or that of the low-precision copy if the copy is used
  /// once and backward does not accumulate (GradSlot::contribute_cast()).
  const Tensor& grad() const;
  /// Returns whether a backward has written the gradient since the last consume_grad(). An optimizer steps
  /// only on new gradients, so stale gradients are ignored and nothing has to be zeroed.
  bool has_new_grad() const;
  /// Marks the gradient as used: has_new_grad() becomes false, and the next backward overwrites it.
  void consume_grad() const;
  /// Frees the memory of a consumed gradient for the next forward pass; grad() is undefined afterwards. Keeps
  /// a gradient whose storage was set by set_grad_storage(). Throws UsageError if the gradient is new.
  void release_grad() const;

  /// Replaces the value of a leaf, as when a model moves to another device or precision. Drops the gradient,
  /// the ready hook and the low-precision copy. Throws UsageError if the variable is not a leaf.
  void set_value(Tensor value) const;
  /// Returns a handle to the same variable that holds no value, unless the variable is a leaf.
  Variable without_value() const;
  /// Returns a new leaf with the same value, outside the graph.
  Variable detach() const { return Variable(value()); }
  /// Returns whether both handles refer to the same variable.
  friend bool operator==(const Variable& a, const Variable& b) { return a.state_ == b.state_; }

  // ---- Gradient placement, hooks and low-precision copies of leaves. ----
  // Only data-parallel training and mixed precision use what follows.

  /// Makes backward write this leaf's gradient to `slice`, usually a slice of a bucket. Throws UsageError
  /// unless its shape, dtype and device are those of the value.
  void set_grad_storage(Tensor slice) const;
  /// Marks the contents of the gradient's storage as this step's gradient although no backward wrote it:
  /// other ranks sent it, or it was copied there. Throws UsageError if there is no gradient.
  void mark_grad_new() const;
  /// Sets a hook that backward calls before it enqueues the first contribution to this leaf's gradient,
  /// unless it accumulates into a new gradient. The hook may call set_grad_storage(). It must not own this
  /// variable, since the two would keep each other alive. An empty function removes the hook.
  void on_grad_begin(std::function<void()> hook) const;
  /// Sets a hook that backward calls as soon as it has enqueued the last contribution to this leaf's
  /// gradient. The hook must not own this variable. An empty function removes it. On a GPU, the compute stream waits for
  /// the side stream first, unless `on_side_stream`: the gradient may then be complete only after the side stream's work so
  /// far (DeviceContext::wait_for_side_stream()).
  void on_grad_ready(std::function<void()> hook, bool on_side_stream = false) const;
  /// Sets a hook that makes the compute stream wait until the bytes of this leaf's value and low-precision
  /// copy are ready, such as after an all-gather. The next wait_ready() runs it. An empty function means that
  /// the value is ready.
  void set_ready_hook(std::function<void()> hook) const;
  /// Returns the value rounded to f16 or bf16, which cast() uses instead of converting; undefined if there is
  /// no such copy. Code that writes the value must also write the copy.
  const Tensor& low_precision_copy() const;
  /// Sets the low-precision copy of a leaf; an undefined tensor removes it. Throws UsageError unless `copy`
  /// is f16 or bf16 and has the shape and device of the value.
  void set_low_precision_copy(Tensor copy) const;

 private:
  friend struct GradTarget;
  friend class BackwardPass;
  struct State;
  std::shared_ptr<State> state_;
  Tensor result_;  // of an operation. A leaf's value is in its state, where set_value() reaches all handles.
};

/// Calls wait_ready() for each of the variables that is defined.
template <class... Variables>
void wait_ready(const Variables&... inputs) {
  ((inputs.defined() ? inputs.wait_ready() : void()), ...);
}

struct GradTarget;

/// The destination for the gradient of one input of an operation. A backward function uses a wanted slot in
/// one of two ways, claim() or alias_or_accumulate(), or not at all if the operation contributes nothing.
/// Valid during the call of the backward function, on its thread.
class GradSlot {
 public:
  /// Makes a slot for an input that requires no gradient.
  GradSlot() = default;
  /// Makes a slot for an input that requires a gradient. Called by backward() only.
  explicit GradSlot(GradTarget* target) : target_(target) {}

  /// Returns whether the input requires a gradient.
  bool wanted() const { return target_ != nullptr; }
  /// Claims the destination for one contribution, and returns it with the mode in which to write it:
  /// GradMode::overwrite for the first contribution to this input's gradient, GradMode::accumulate for all
  /// later ones. The call counts as that contribution: call it exactly once per contribution, and enqueue the
  /// write before the backward function returns. On the first contribution it also runs the leaf's grad-begin
  /// hook and allocates the gradient if needed. Returns a null view, which kernels skip, if !wanted().
  GradView claim();
  /// Claims the destination like claim(), and calls write(stream, destination), which enqueues the
  /// contribution on the side stream of a GPU (DeviceContext::enqueue_on_side_stream()). For gradients that
  /// take long and that the rest of the backward pass does not read, like those of filters. `write` must hold
  /// the tensors that it reads. Does nothing if !wanted().
  void claim_on_side_stream(std::function<void(const Stream& stream, const GradView& destination)> write);
  /// Contributes `gradient` as it is, like the backward of a sum or a reshape. Aliases the tensor without a
  /// copy if this is the first contribution and the input is not a leaf; otherwise copies it or adds it to
  /// the gradient. Does nothing if !wanted(). Throws UsageError if the shape is not that of the input.
  void alias_or_accumulate(const Tensor& gradient);
  /// Contributes `gradient`, converted to the type of the input: the backward of a cast. If `gradient` has
  /// the type of the leaf's low-precision copy, is the first contribution and no storage was set, the leaf
  /// keeps it unconverted. Later contributions convert it first, so the sum has the same bits. Does nothing
  /// if !wanted(). Throws UsageError if the shape is not that of the input.
  void contribute_cast(const Tensor& gradient);

 private:
  GradTarget* target_ = nullptr;
};

/// Arithmetic and memory traffic, counted by the rules of bench/README.md ("What is counted").
struct Cost {
  std::int64_t flops = 0;  // floating-point operations; a multiply-add is 2
  std::int64_t bytes = 0;  // of device memory, read and written

  /// Adds both counts.
  Cost& operator+=(const Cost& other) {
    flops += other.flops;
    bytes += other.bytes;
    return *this;
  }
  /// Compares both counts.
  friend bool operator==(const Cost&, const Cost&) = default;
};

/// The cost of one call of an operation. `backward` counts only the gradients that the inputs require.
struct OpCost {
  Cost forward;   // of the forward pass
  Cost backward;  // of the backward pass
};

/// An option of an operation, or a constant tensor that it reads, such as the running mean of a batch norm.
struct OpAttribute {
  /// Makes an attribute with a number. Flags are 0 and 1.
  template <class Number>
  requires std::is_arithmetic_v<Number> OpAttribute(std::string_view attribute, Number value)
      : name(attribute), number(static_cast<double>(value)) {}
  /// Makes an attribute with a tensor.
  OpAttribute(std::string_view attribute, Tensor value) : name(attribute), tensor(std::move(value)) {}
  /// Makes an attribute with a list of integers, such as axes.
  OpAttribute(std::string_view attribute, std::vector<std::int64_t> values)
      : name(attribute), list(std::move(values)) {}

  std::string_view name;           // "stride"
  double number = 0;               // unless it is a tensor or a list
  Tensor tensor;                   // undefined unless it is one
  std::vector<std::int64_t> list;  // {2, 1, 5}; empty unless it is one
};

/// A recorded operation with one result. Does not change, except that backward() drops `backward`.
struct Node {
  /// Enqueues the gradients of the inputs, given the gradient `dy` of the result. `slots` has one entry per
  /// input, in the order of the inputs.
  using Backward = std::function<void(const Tensor& dy, std::span<GradSlot> slots)>;

  std::string_view name;         // "conv2d": for messages and traces
  std::vector<Variable> inputs;  // handles without values
  Backward backward;             // dropped after use, together with the tensors it saved
  OpCost cost;                   // as the operation gave it to record()
  /// What io::encode_onnx() has to know about the operation besides its inputs.
  std::vector<OpAttribute> attributes;
  std::uint64_t sequence = 0;  // order of creation on this thread
};

/// Returns `y` as a variable. If an input requires a gradient and recording is on, records the operation with
/// its inputs, its backward and its cost; otherwise drops them. The cost is stated here once: the FLOPs of
/// model summaries and the rows of convoy-bench-kernels are derived from it. An operation that states none
/// counts as free. Attributes are for exports: an operation that io::encode_onnx() does not know has none.
/// Throws UsageError if an input is not ready: the operation did not call wait_ready().
Variable record(std::string_view name, Tensor y, std::vector<Variable> inputs, Node::Backward backward,
                OpCost cost = {}, std::vector<OpAttribute> attributes = {});

/// Returns the sum of the costs of the recorded operations that computed `results`, each counted once,
/// without those that computed `inputs`. Variables may be undefined.
OpCost recorded_cost(std::span<const Variable> results, std::span<const Variable> inputs = {});
/// Returns the cost of all recorded operations that computed y.
inline OpCost recorded_cost(const Variable& y) { return recorded_cost(std::span(&y, 1)); }

/// A scope in which operations of the calling thread are not recorded, so that evaluation keeps no
/// activations. Scopes may be nested.
class NoGrad {
 public:
  /// Opens the scope for the calling thread, which also closes it.
  NoGrad();
  /// Closes the scope.
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
  /// Returns whether the calling thread is inside such a scope.
  static bool active();

 private:
  bool previous_;
};

/// A scope in which operations of the calling thread are recorded, also inside NoGrad.
class RecordingScope {
 public:
  /// Starts recording.
  RecordingScope();
  /// Restores the state before the scope.
  ~RecordingScope();
  RecordingScope(const RecordingScope&) = delete;
  RecordingScope& operator=(const RecordingScope&) = delete;

 private:
  bool previous_;
};

}  // namespace convoy
