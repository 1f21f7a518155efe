// GradSlot: how a backward function contributes to the gradients of its inputs.
#include "convoy/engine/autograd/grad_target.h"
#include "convoy/engine/autograd/op_observer.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"

namespace convoy {

GradView GradSlot::claim() {
  if (!wanted()) return {};
  const GradMode mode = target_->prepare();
  return GradView(target_->gradient.view(), mode);
}

void GradSlot::claim_on_side_stream(std::function<void(const Stream&, const GradView&)> write) {
  if (!wanted()) return;
  const GradMode mode = target_->prepare();
  const Tensor gradient = target_->gradient;
  if (OpObserver::active() != nullptr)  // which times the work of an operation on the compute stream
    return write(gradient.stream(), GradView(gradient.view(), mode));
  const std::uint64_t number = gradient.context().enqueue_on_side_stream(
      [gradient, mode, write = std::move(write)](const Stream& stream) {
        write(stream, GradView(gradient.view(), mode));
      });
  gradient.written_on_side_stream(number);
}

void GradSlot::alias_or_accumulate(const Tensor& gradient) {
  if (!wanted()) return;
  check(gradient.shape() == target_->variable.shape(),
        "backward: gradient {}, expected the variable's shape {}", gradient.shape().text(),
        target_->variable.shape().text());
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
  check(gradient.shape() == target_->variable.shape(),
        "backward: gradient {}, expected the variable's shape {}", gradient.shape().text(),
        target_->variable.shape().text());
  if (target_->keep_unconverted(gradient)) return;
  const GradView destination = claim();
  on(gradient.stream(), [&](auto& s) {
    if (destination.mode == GradMode::overwrite) return kernels::cast(s, gradient.view(), destination);
    kernels::scale(s, gradient.to(destination.dtype).view(), 1, destination);
  });
}

}  // namespace convoy
