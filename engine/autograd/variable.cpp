#include "engine/autograd/variable.h"

#include <algorithm>

#include "engine/autograd/variable_state.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

// Per thread, because a thread records one graph at a time; NoGrad restores what it found.
thread_local bool recording_is_off = false;
thread_local std::uint64_t next_sequence = 0;

}  // namespace

Variable::Variable(Tensor value, bool requires_grad) : state_(std::make_shared<State>()) {
  check(!requires_grad || is_floating(value.dtype()),
        "a gradient of {} values was asked for; expected floating point", name_of(value.dtype()));
  state_->value = std::move(value);
  state_->requires_grad = requires_grad;
}

Variable::Variable(Tensor value, std::shared_ptr<Node> creator) : state_(std::make_shared<State>()) {
  result_ = std::move(value);
  state_->creator = std::move(creator);
  state_->requires_grad = true;
  state_->shape = result_.shape();
  state_->dtype = result_.dtype();
  state_->device = result_.device();
}

const Tensor& Variable::tensor() const {
  check(defined(), "an undefined variable was used");
  if (is_leaf()) return state_->value;
  check(result_.defined(), "the graph holds no value of '{}'", creator()->name);
  return result_;
}

const Shape& Variable::shape() const { return defined() && !is_leaf() ? state_->shape : tensor().shape(); }
DType Variable::dtype() const { return defined() && !is_leaf() ? state_->dtype : tensor().dtype(); }
const Device& Variable::device() const {
  return defined() && !is_leaf() ? *state_->device : tensor().device();
}

Variable Variable::without_value() const {
  Variable handle;
  handle.state_ = state_;
  return handle;
}

const Tensor& Variable::value() const {
  const Tensor& value = tensor();
  arrive();
  return value;
}

void Variable::arrive() const {
  if (state_->arrive) std::exchange(state_->arrive, nullptr)();
}

bool Variable::requires_grad() const { return state_ != nullptr && state_->requires_grad; }
const std::shared_ptr<Node>& Variable::creator() const { return state_->creator; }
const Tensor& Variable::grad() const { return state_->grad; }
bool Variable::has_fresh_grad() const { return state_->grad_is_fresh; }

void Variable::consume_grad() const { state_->grad_is_fresh = false; }

void Variable::release_grad() const {
  check(!has_fresh_grad(), "a gradient was released that nobody has used");
  if (!state_->grad_is_lent) state_->grad = Tensor();
}

void Variable::mark_grad_fresh() const {
  check(grad().defined(), "a gradient that is nowhere was called fresh");
  state_->grad_is_fresh = true;
}

const Tensor& Variable::half_copy() const {
  arrive();
  return state_->half_copy;
}

void Variable::on_grad_begin(std::function<void()> hook) const { state_->grad_begin = std::move(hook); }
void Variable::on_grad_ready(std::function<void()> hook) const { state_->grad_ready = std::move(hook); }
void Variable::set_arrival(std::function<void()> arrive) const { state_->arrive = std::move(arrive); }

void Variable::set_grad_storage(Tensor slice) const {
  check(slice.shape() == shape() && slice.dtype() == dtype() && slice.device() == device(),
        "gradient storage {} {} for a variable {} {}", name_of(slice.dtype()), slice.shape().text(),
        name_of(dtype()), shape().text());
  state_->grad = std::move(slice);
  state_->grad_is_fresh = false;
  state_->grad_is_lent = true;
}

void Variable::set_value(Tensor value) const {
  if (!is_leaf())  // not check(): it would look at the creator that a leaf does not have
    fail<UsageError>("set_value: '{}' computed this variable; only leaves can be replaced", creator()->name);
  state_->value = std::move(value);
  state_->arrive = nullptr;
  state_->half_copy = Tensor();
  state_->grad = Tensor();
  state_->grad_is_fresh = state_->grad_is_lent = false;
}

void Variable::set_half_copy(Tensor copy) const {
  if (!is_leaf())
    fail<UsageError>("set_half_copy: '{}' computed this variable; only leaves keep one", creator()->name);
  check(!copy.defined() || (is_half(copy.dtype()) && copy.shape() == shape() && copy.device() == device()),
        "a half copy {} {} of a variable {} {}", copy.defined() ? name_of(copy.dtype()) : "undefined",
        copy.shape().text(), name_of(dtype()), shape().text());
  state_->half_copy = std::move(copy);
}

Variable record(std::string_view name, Tensor y, std::vector<Variable> inputs, Node::Backward backward) {
  const bool wanted =
      std::any_of(inputs.begin(), inputs.end(), [](const Variable& x) { return x.requires_grad(); });
  if (recording_is_off || !wanted) return Variable(std::move(y));
  for (Variable& input : inputs)
    if (input.defined()) input = input.without_value();
  return Variable(std::move(y), std::make_shared<Node>(Node{.name = name,
                                                            .inputs = std::move(inputs),
                                                            .backward = std::move(backward),
                                                            .sequence = next_sequence++}));
}

NoGrad::NoGrad() : previous_(recording_is_off) { recording_is_off = true; }
NoGrad::~NoGrad() { recording_is_off = previous_; }
bool NoGrad::active() { return recording_is_off; }

}  // namespace convoy
