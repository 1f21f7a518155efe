#include "convoy/engine/autograd/backward.h"

#include <queue>
#include <unordered_map>
#include <utility>

#include "convoy/engine/autograd/op_observer.h"
#include "convoy/engine/autograd/variable_state.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/named_range.h"

namespace convoy {

/// The gradient of one variable while backward accumulates it.
struct GradTarget {
  Variable variable;
  int pending = 0;         // consumers that have not run yet
  Tensor gradient;         // the leaf's own storage, or the sum of the contributions so far
  bool has_value = false;  // `gradient` holds a value: further contributions are added

  bool is_leaf() const { return variable.is_leaf(); }

  /// Ensures that `gradient` is a writable tensor, counts one contribution, and returns its mode.
  GradMode prepare() {
    if (is_leaf() && !has_value) run_grad_begin_hook();
    if (gradient.defined() && is_half(gradient.dtype()) && !is_half(variable.dtype()))  // kept unconverted
      gradient = has_value ? gradient.to(variable.dtype()) : Tensor();
    if (!gradient.defined()) {
      gradient = Tensor::empty(variable.shape(), variable.dtype(), variable.context());
    } else if (has_value && !is_leaf() && !gradient.is_only_owner()) {
      gradient = gradient.clone();  // aliased by alias_or_accumulate(): other users need the old value
    }
    return std::exchange(has_value, true) ? GradMode::accumulate : GradMode::overwrite;
  }

  /// Makes `half` the gradient if this is the first contribution to a leaf, the leaf's low-precision copy has
  /// the type of `half`, and no other storage is set for the gradient. Returns whether it did.
  bool keep_unconverted(const Tensor& half) {
    if (!is_leaf() || has_value) return false;
    const Variable::State& leaf = *variable.state_;
    const Tensor& copy = leaf.low_precision_copy;
    if (!copy.defined() || copy.dtype() != half.dtype()) return false;
    if (leaf.grad_is_borrowed || leaf.grad_begin_hook) return false;
    gradient = half;
    return has_value = true;
  }

  /// The hook may set the gradient's storage.
  void run_grad_begin_hook() {
    Variable::State& leaf = *variable.state_;
    if (!leaf.grad_begin_hook) return;
    leaf.grad_begin_hook();
    gradient = leaf.grad;
  }
};

/// One traversal of the graph. Targets are keyed by the variable's state, so all handles to one variable
/// share one target.
class BackwardPass {
 public:
  explicit BackwardPass(const Variable& loss) { begin(loss); }

  /// Computes all gradients, starting from `seed`, the gradient of the loss.
  void run(const Tensor& seed, bool accumulate) {
    for (auto& [state, target] : targets_)
      if (target.is_leaf()) begin_leaf(target, accumulate);
    GradTarget& start = target_of(ready_.top());
    start.gradient = seed;
    start.has_value = true;
    struct Scope {
      BackwardPass* const outer;
      ~Scope() { active_ = outer; }
    } const scope{std::exchange(active_, this)};
    while (!ready_.empty()) run_node(next());
  }

  /// Returns the pass whose backward function the calling thread runs; null outside of one.
  static BackwardPass* active() { return active_; }

  /// Computes the gradients of `result` as a part of this pass, which continues afterwards: contributions to the
  /// gradient of inner[i] are those to the gradient of outer[i], a variable that waits for this part.
  void run_part(const Variable& result, const Tensor& gradient, std::span<const Variable> inner,
                std::span<const Variable> outer) {
    check(result.requires_grad() && !result.is_leaf(),
          "checkpoint_activations: the part records no operation that requires a gradient, expected one");
    BackwardPass part;
    for (std::size_t i = 0; i < inner.size(); ++i)
      if (outer[i].requires_grad()) part.shared_[inner[i].state_.get()] = &target_of(outer[i]);
    part.begin(result);
    for (const auto& [state, target] : part.targets_)
      check(!target.is_leaf(),
            "checkpoint_activations: the part uses a leaf {} that requires a gradient, expected it among "
            "CheckpointedPart::parameters",
            target.variable.shape().text());
    part.run(gradient, false);
  }

  /// Makes the same traversal without computing anything, and returns the leaves in the order of their last
  /// contributions.
  std::vector<Variable> leaves() {
    std::vector<Variable> complete;
    while (!ready_.empty()) {
      const Variable result = next();
      for (const Variable& input : result.creator()->inputs) {
        if (!input.requires_grad() || --target_of(input).pending > 0) continue;
        if (input.is_leaf())
          complete.push_back(input);
        else
          ready_.push(input);
      }
    }
    return complete;
  }

 private:
  BackwardPass() = default;
  void begin(const Variable& loss) {
    target_of(loss).pending = 1;
    count_consumers(loss);
    ready_.push(loss.without_value());
  }

  struct RecordedEarlier {
    bool operator()(const Variable& a, const Variable& b) const {
      return a.creator()->sequence < b.creator()->sequence;
    }
  };

  Variable next() {
    Variable result = ready_.top();
    ready_.pop();
    return result;
  }

  GradTarget& target_of(const Variable& variable) {
    if (is_shared(variable)) return *shared_.at(variable.state_.get());
    const auto [entry, is_new] = targets_.try_emplace(variable.state_.get());
    if (is_new) entry->second.variable = variable.without_value();
    return entry->second;
  }

  /// Returns whether another pass has the target of the variable, and completes it.
  bool is_shared(const Variable& variable) const { return shared_.contains(variable.state_.get()); }

  /// Visits every operation behind `loss` once and counts, for each variable, the operations that consume it.
  void count_consumers(const Variable& loss) {
    std::vector<Node*> unvisited = {loss.creator().get()};
    while (!unvisited.empty()) {
      const Node* node = unvisited.back();
      unvisited.pop_back();
      check(static_cast<bool>(node->backward), "backward: an earlier backward freed the graph at '{}'",
            node->name);
      for (const Variable& input : node->inputs) {
        if (!input.requires_grad() || is_shared(input)) continue;
        const bool is_new = !targets_.contains(input.state_.get());
        ++target_of(input).pending;
        if (is_new && !input.is_leaf()) unvisited.push_back(input.creator().get());
      }
    }
  }

  static void begin_leaf(GradTarget& target, bool accumulate) {
    Variable::State& leaf = *target.variable.state_;
    target.gradient = leaf.grad;
    target.has_value = accumulate && leaf.grad_is_new;
    leaf.grad_is_new = false;
  }

  /// Notes that one of the variable's consumers has run. The last one completes its gradient.
  void consumer_done(const Variable& variable) {
    if (is_shared(variable)) return;
    GradTarget& target = target_of(variable);
    if (--target.pending > 0) return;
    if (!target.is_leaf()) {
      ready_.push(variable);
      return;
    }
    Variable::State& leaf = *variable.state_;
    leaf.grad = target.gradient;
    leaf.grad_is_new = target.has_value;
    if (!leaf.grad_is_new || !leaf.grad_ready_hook) return;
    if (!leaf.ready_on_side_stream) variable.context().join_side_stream();
    leaf.grad_ready_hook();
  }

  void run_node(const Variable& result) {
    Node& node = *result.creator();
    const GradTarget target = std::move(target_of(result));
    targets_.erase(result.state_.get());

    std::vector<GradSlot> slots;
    slots.reserve(node.inputs.size());
    for (const Variable& input : node.inputs)
      slots.push_back(input.requires_grad() ? GradSlot(&target_of(input)) : GradSlot());
    if (target.has_value) {
      const NamedRange range(node.name);
      node.backward(target.gradient, slots);
      if (OpObserver* const observer = OpObserver::active()) observer->backward_done(node, target.gradient);
    }

    // Frees the saved tensors. The inputs are released last, since they may hold the only references to their
    // creators.
    node.backward = nullptr;
    const std::vector<Variable> inputs = std::exchange(node.inputs, {});
    for (const Variable& input : inputs)
      if (input.requires_grad()) consumer_done(input);
  }

  inline static thread_local BackwardPass* active_ = nullptr;
  std::unordered_map<Variable::State*, GradTarget> targets_;
  std::unordered_map<Variable::State*, GradTarget*> shared_;  // of another pass, by a leaf of this one
  std::priority_queue<Variable, std::vector<Variable>, RecordedEarlier> ready_;
};

namespace {

void check_recorded(const Variable& loss) {
  check(loss.requires_grad() && !loss.is_leaf(),
        "backward: nothing was recorded: no input requires a gradient");
}

}  // namespace

std::vector<Variable> backward_order(const Variable& loss) {
  check_recorded(loss);
  return BackwardPass(loss).leaves();
}

void backward_part(const Variable& result, const Tensor& gradient, std::span<const Variable> inner,
                   std::span<const Variable> outer) {
  BackwardPass::active()->run_part(result, gradient, inner, outer);
}

void backward(const Variable& loss, const BackwardOptions& options) {
  check_recorded(loss);
  check(loss.device() != Device::meta(), "backward: the loss is on the meta device, expected one with data");
  if (options.seed.defined()) {
    check(options.seed.shape() == loss.shape() && options.seed.dtype() == loss.dtype(),
          "backward: seed is {} {}, expected {} {}", to_string(options.seed.dtype()),
          options.seed.shape().text(), to_string(loss.dtype()), loss.shape().text());
  } else {
    check(loss.value().numel() == 1,
          "backward: variable {} needs a seed; only a variable of one element has a default",
          loss.shape().text());
  }
  const NoGrad no_grad;
  const DeviceContext& context = loss.context();
  try {
    BackwardPass(loss).run(
        options.seed.defined() ? options.seed : Tensor::full(loss.shape(), 1, loss.dtype(), context),
        options.accumulate);
  } catch (...) {
    try {
      context.join_side_stream();
    } catch (const Error&) {  // a consequence of the first error, which is rethrown
    }
    throw;
  }
  context.join_side_stream();
}

// ---- How a backward function contributes to the gradients of its inputs ----

GradView GradSlot::claim() {
  if (!wanted()) return {};
  const GradMode mode = target_->prepare();
  // The side stream may be writing other gradients of the same bucket.
  const Tensor& gradient = target_->gradient;
  return GradView(mode == GradMode::overwrite ? gradient.view_without_waiting() : gradient.view(), mode);
}

void GradSlot::claim_on_side_stream(std::function<void(const Stream&, const GradView&)> write) {
  if (!wanted()) return;
  const GradMode mode = target_->prepare();
  const Tensor gradient = target_->gradient;
  if (OpObserver::active() != nullptr)  // which times the work of an operation on the compute stream
    return write(gradient.stream(), GradView(gradient.view(), mode));
  const std::uint64_t number = gradient.context().enqueue_on_side_stream(
      [gradient, mode, write = std::move(write)](const Stream& stream) {
        write(stream, GradView(gradient.view_without_waiting(), mode));
      });
  gradient.written_on_side_stream(number);
}

namespace {

void check_shape(const Tensor& gradient, const Variable& variable) {
  check(gradient.shape() == variable.shape(), "backward: gradient {}, expected the variable's shape {}",
        gradient.shape().text(), variable.shape().text());
}

}  // namespace

void GradSlot::alias_or_accumulate(const Tensor& gradient) {
  if (!wanted()) return;
  check_shape(gradient, target_->variable);
  if (!target_->is_leaf() && !target_->has_value) {
    target_->gradient = gradient;
    target_->has_value = true;
    return;
  }
  const GradView destination = claim();
  on(gradient.stream(), [&](auto& s) { kernels::scale(s, gradient.view(), 1, destination); });
}

void GradSlot::contribute_cast(const Tensor& gradient) {
  if (!wanted()) return;
  check_shape(gradient, target_->variable);
  if (target_->keep_unconverted(gradient)) return;
  const GradView destination = claim();
  on(gradient.stream(), [&](auto& s) {
    if (destination.mode == GradMode::overwrite) return kernels::cast(s, gradient.view(), destination);
    kernels::scale(s, gradient.to(destination.dtype).view(), 1, destination);
  });
}

}  // namespace convoy
