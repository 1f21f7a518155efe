// Variable: a tensor in a graph of recorded operations.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/tensor/tensor.h"

namespace convoy {

struct Node;

/// A handle: copies are the same variable. Leaves (parameters, inputs) are made from a tensor; every other
/// variable is the result of an operation and remembers its creator where any input wants a gradient. The
/// value of such a result lives as long as a handle that holds it, or an operation that saved it for its
/// backward: the graph itself holds none.
class Variable {
 public:
  Variable() = default;
  explicit Variable(Tensor value, bool requires_grad = false);
  /// The result of `creator`; what ops make. Recorded only where an input requires a gradient and recording
  /// is on.
  Variable(Tensor value, std::shared_ptr<Node> creator);

  bool defined() const { return state_ != nullptr; }
  const Tensor& value() const;
  const Shape& shape() const;
  DType dtype() const;
  const Device& device() const;
  bool requires_grad() const;
  bool is_leaf() const { return creator() == nullptr; }
  const std::shared_ptr<Node>& creator() const;

  /// The gradient of a leaf; undefined before the first backward that reaches it, and once released.
  const Tensor& grad() const;
  /// True from the backward that wrote the gradient until consume_grad(): so an optimizer never steps on a
  /// stale one, and nobody has to zero anything.
  bool has_fresh_grad() const;
  void consume_grad() const;
  /// Gives the memory of a consumed gradient back, for the activations of the next forward: grad() is
  /// undefined then. One that was born in storage of somebody else's stays.
  void release_grad() const;
  /// The storage holds this update's gradient although no backward wrote it: it came from other ranks, or was
  /// copied there.
  void mark_grad_fresh() const;
  /// Where this leaf's gradient is born: a slice of a bucket, of the value's shape and dtype.
  void set_grad_storage(Tensor slice) const;
  /// Called inside backward, the moment the last contribution to this leaf's gradient has been enqueued. The
  /// hook must not own this variable: the two would keep each other alive.
  void on_grad_ready(std::function<void()> hook) const;
  /// Called inside backward before the first contribution to this leaf's gradient is enqueued, where nothing
  /// is to be added to: the last moment for set_grad_storage(). Owns this variable as little as the other.
  void on_grad_begin(std::function<void()> hook) const;
  /// The bytes of this leaf's value (and half copy) are on their way: `arrive` is called before either is
  /// next asked for, once, and has the compute stream wait for them. Empty: they are here.
  void set_arrival(std::function<void()> arrive) const;
  /// Replaces the tensor of a leaf: a model moving to another device or precision. Its gradient and its half
  /// copy go.
  void set_value(Tensor value) const;
  /// A leaf's value rounded to f16 or bf16, which cast() takes where it is asked for that type; undefined
  /// where there is none. Whoever writes the value keeps the copy up to date.
  const Tensor& half_copy() const;
  /// UsageError where `copy` is of another shape, device or type; undefined: none from now on.
  void set_half_copy(Tensor copy) const;

  /// The same variable, but a handle that holds no value of an operation.
  Variable without_value() const;
  /// The same tensor, outside the graph.
  Variable detach() const { return Variable(value()); }
  friend bool operator==(const Variable& a, const Variable& b) { return a.state_ == b.state_; }

 private:
  friend struct GradTarget;
  friend class BackwardPass;
  struct State;
  const Tensor& tensor() const;  // the value, its bytes here or not
  void arrive() const;
  std::shared_ptr<State> state_;
  Tensor result_;  // of an operation; a leaf's value is in its state, where all handles see it replaced
};

struct GradTarget;

/// Where a backward function puts the gradient of one input. A wanted slot may be used in one of two ways, or
/// left alone where the op contributes nothing.
class GradSlot {
 public:
  GradSlot() = default;  // unwanted
  explicit GradSlot(GradTarget* target) : target_(target) {}

  bool wanted() const { return target_ != nullptr; }
  /// The destination and its mode. An unwanted slot gives a null view, which kernels skip.
  GradView view();
  /// The contribution is exactly this tensor (the gradient of a sum, of a reshape): shared where nothing has
  /// been contributed yet and the input is no leaf, else copied or added.
  void take(const Tensor& gradient);

 private:
  GradTarget* target_ = nullptr;
};

/// A recorded operation with one result.
struct Node {
  using Backward = std::function<void(const Tensor& dy, std::span<GradSlot> slots)>;

  std::string_view name;         // "conv2d": for messages and traces
  std::vector<Variable> inputs;  // without values; slots come in the same order
  Backward backward;             // dropped after use, with the tensors it saved
  std::uint64_t sequence = 0;    // order of creation on this thread
};

/// What an op returns: `y`, recorded with its inputs and its backward where that is wanted.
Variable record(std::string_view name, Tensor y, std::vector<Variable> inputs, Node::Backward backward);

/// While one lives, operations of this thread are not recorded: evaluation keeps no activations.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
  static bool active();

 private:
  bool previous_;
};

}  // namespace convoy
