#include "convoy/engine/autograd/variable.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "convoy/engine/autograd/op_observer.h"
#include "convoy/engine/autograd/variable_state.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

// Per thread, because a thread records one graph at a time.
thread_local bool recording_is_off = false;
thread_local std::uint64_t next_sequence = 0;
thread_local OpObserver* active_observer = nullptr;
thread_local std::string_view current_module;

}  // namespace

Variable::Variable(Tensor value, bool requires_grad) : state_(std::make_shared<State>()) {
  state_->value = std::move(value);
  set_requires_grad(requires_grad);
}

Variable::Variable(Tensor value, std::shared_ptr<Node> creator) : state_(std::make_shared<State>()) {
  result_ = std::move(value);
  state_->creator = std::move(creator);
  state_->requires_grad = true;
  state_->shape = result_.shape();
  state_->dtype = result_.dtype();
  state_->context = result_.context();
}

const Tensor& Variable::value() const {
  check(defined(), "undefined variable used: expected a variable with a value");
  if (is_leaf()) return state_->value;
  check(result_.defined(), "the graph holds no value of '{}': this handle was made without one",
        creator()->name);
  return result_;
}

const Shape& Variable::shape() const { return defined() && !is_leaf() ? state_->shape : value().shape(); }
DType Variable::dtype() const { return defined() && !is_leaf() ? state_->dtype : value().dtype(); }
const DeviceContext& Variable::context() const {
  return defined() && !is_leaf() ? *state_->context : value().context();
}

Variable Variable::without_value() const {
  Variable handle;
  handle.state_ = state_;
  return handle;
}

bool Variable::is_ready() const { return !state_->ready_hook; }

void Variable::wait_ready() const {
  if (state_->ready_hook) std::exchange(state_->ready_hook, nullptr)();
}

bool Variable::requires_grad() const { return state_ != nullptr && state_->requires_grad; }
void Variable::set_requires_grad(bool requires_grad) const {
  check(defined() && is_leaf(), "set_requires_grad: found {}, expected a leaf",
        defined() ? "the result of an operation" : "an undefined variable");
  check(!requires_grad || is_floating(dtype()),
        "a variable of type {} cannot require a gradient; expected floating point", to_string(dtype()));
  state_->requires_grad = requires_grad;
}

const std::shared_ptr<Node>& Variable::creator() const { return state_->creator; }
const Tensor& Variable::grad() const { return state_->grad; }
bool Variable::has_new_grad() const { return state_->grad_is_new; }

void Variable::consume_grad() const { state_->grad_is_new = false; }

void Variable::release_grad() const {
  check(!has_new_grad(), "release_grad: the gradient is new; consume it first, or the step would miss it");
  if (!state_->grad_is_borrowed) state_->grad = Tensor();
}

void Variable::mark_grad_new() const {
  check(grad().defined(), "mark_grad_new: the variable has no gradient");
  state_->grad_is_new = true;
}

const Tensor& Variable::low_precision_copy() const { return state_->low_precision_copy; }

void Variable::on_grad_begin(std::function<void()> hook) const { state_->grad_begin_hook = std::move(hook); }
void Variable::on_grad_ready(std::function<void()> hook, bool on_side_stream) const {
  state_->grad_ready_hook = std::move(hook);
  state_->ready_on_side_stream = on_side_stream;
}
void Variable::set_ready_hook(std::function<void()> hook) const { state_->ready_hook = std::move(hook); }

void Variable::set_grad_storage(Tensor slice) const {
  check(slice.shape() == shape() && slice.dtype() == dtype() && slice.device() == device(),
        "gradient storage is {} {}, expected {} {} on the variable's device", to_string(slice.dtype()),
        slice.shape().text(), to_string(dtype()), shape().text());
  state_->grad = std::move(slice);
  state_->grad_is_new = false;
  state_->grad_is_borrowed = true;
}

void Variable::set_value(Tensor value) const {
  if (!is_leaf())  // not check(), which would evaluate creator()->name for a leaf too
    fail<UsageError>("set_value: '{}' computed this variable; only a leaf's value can be set",
                     creator()->name);
  state_->value = std::move(value);
  state_->ready_hook = nullptr;
  state_->low_precision_copy = Tensor();
  state_->grad = Tensor();
  state_->grad_is_new = state_->grad_is_borrowed = false;
}

void Variable::set_low_precision_copy(Tensor copy) const {
  if (!is_leaf())
    fail<UsageError>("set_low_precision_copy: '{}' computed this variable; only leaves have such a copy",
                     creator()->name);
  check(!copy.defined() || (is_half(copy.dtype()) && copy.shape() == shape() && copy.device() == device()),
        "low-precision copy {} {} of a variable {} {}: expected f16 or bf16 of the same shape and device",
        copy.defined() ? to_string(copy.dtype()) : "undefined", copy.shape().text(), to_string(dtype()),
        shape().text());
  state_->low_precision_copy = std::move(copy);
}

Variable record(std::string_view name, Tensor y, std::vector<Variable> inputs, Node::Backward backward,
                OpCost cost, std::vector<OpAttribute> attributes) {
  for (const Variable& input : inputs)
    check(!input.defined() || input.is_ready(),
          "{}: an input may not be ready; call wait_ready() before reading it", name);
  const bool wants_grad =
      std::any_of(inputs.begin(), inputs.end(), [](const Variable& x) { return x.requires_grad(); });
  const auto observe = [&](const Node* node) {
    if (active_observer != nullptr)
      active_observer->forward_done({name, current_module, y, cost.forward}, node);
  };
  if (recording_is_off || !wants_grad) {
    observe(nullptr);
    return Variable(std::move(y));
  }
  for (Variable& input : inputs)
    if (input.defined()) input = input.without_value();
  auto node = std::make_shared<Node>(Node{.name = name,
                                          .inputs = std::move(inputs),
                                          .backward = std::move(backward),
                                          .cost = cost,
                                          .attributes = std::move(attributes),
                                          .sequence = next_sequence++});
  observe(node.get());
  return Variable(std::move(y), std::move(node));
}

OpCost recorded_cost(std::span<const Variable> results, std::span<const Variable> inputs) {
  std::unordered_set<const Node*> visited;
  const auto cost_behind = [&](std::span<const Variable> variables) {
    OpCost total;
    std::vector<const Node*> unvisited;
    const auto visit = [&](const Variable& variable) {
      if (!variable.defined() || variable.is_leaf()) return;
      if (const Node* node = variable.creator().get(); visited.insert(node).second) unvisited.push_back(node);
    };
    for (const Variable& variable : variables) visit(variable);
    while (!unvisited.empty()) {
      const Node* node = unvisited.back();
      unvisited.pop_back();
      total.forward += node->cost.forward;
      total.backward += node->cost.backward;
      for (const Variable& input : node->inputs) visit(input);
    }
    return total;
  };
  cost_behind(inputs);  // visited, and so not counted below
  return cost_behind(results);
}

NoGrad::NoGrad() : previous_(recording_is_off) { recording_is_off = true; }
NoGrad::~NoGrad() { recording_is_off = previous_; }
bool NoGrad::active() { return recording_is_off; }

RecordingScope::RecordingScope() : previous_(std::exchange(recording_is_off, false)) {}
RecordingScope::~RecordingScope() { recording_is_off = previous_; }

OpObserver* OpObserver::active() { return active_observer; }
void OpObserver::activate(OpObserver* observer) { active_observer = observer; }

ModuleScope::ModuleScope(std::string_view path) : previous_(std::exchange(current_module, path)) {}
ModuleScope::~ModuleScope() { current_module = previous_; }

}  // namespace convoy
