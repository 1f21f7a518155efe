// OpObserver: learns of every operation of a thread, forward and backward, as a profiler needs it.
#pragma once

#include <string_view>

#include "convoy/engine/autograd/variable.h"

namespace convoy {

/// A call of an operation.
struct OpCall {
  std::string_view name;  // "conv2d"
  std::string_view
      module;  // the path of the module that called it, such as "layer1.0.conv1"; empty outside of modules
  const Tensor& result;  // of the forward pass, or its gradient
  Cost cost;             // of this direction
};

/// An object that is called after each operation of a thread. One observer at a time is active on a thread.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  /// Called after an operation has enqueued its forward kernels. `node` is null if it was not recorded.
  virtual void forward_done(const OpCall& call, const Node* node) = 0;
  /// Called after a recorded operation has enqueued its backward kernels, and before its saved tensors are
  /// freed.
  virtual void backward_done(const Node& node, const Tensor& dy) = 0;

  /// Returns the observer of the calling thread; null if there is none.
  static OpObserver* active();
  /// Replaces it. A null pointer ends the observation. `observer` must live until it is replaced.
  static void activate(OpObserver* observer);
};

/// A scope in which operations of the calling thread belong to a module. Scopes nest.
class ModuleScope {
 public:
  /// Opens the scope of the module with this path, which must outlive the scope.
  explicit ModuleScope(std::string_view path);
  /// Closes the scope.
  ~ModuleScope();
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;

 private:
  std::string_view previous_;
};

}  // namespace convoy
