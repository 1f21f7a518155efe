#include "convoy/engine/autograd/op_observer.h"

#include <utility>

namespace convoy {
namespace {

thread_local OpObserver* active_observer = nullptr;
thread_local std::string_view current_module;

}  // namespace

OpObserver* OpObserver::active() { return active_observer; }
void OpObserver::activate(OpObserver* observer) { active_observer = observer; }

ModuleScope::ModuleScope(std::string_view path) : previous_(std::exchange(current_module, path)) {}
ModuleScope::~ModuleScope() { current_module = previous_; }

void observe_forward(std::string_view name, const Tensor& y, const OpCost& cost, const Node* node) {
  if (active_observer == nullptr) return;
  active_observer->forward_done({name, current_module, y, cost.forward}, node);
}

}  // namespace convoy
